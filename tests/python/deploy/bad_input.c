/* bad_input FOLDER: calls a program wrongly in every way; each must return its code with a text, and change nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta_runtime.h"
#include "programs.h"

static int failures;
#define EXPECT(call, code) expect((call), (code), #call, __LINE__)
#define TENSOR(memory, kind, ...) {memory, {__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / 8, kind}

static meta_program *program;
static _Alignas(META_ALIGNMENT) float x[160], y[64];

static void expect(int status, int code, const char *call, int line) {
  const char *text = meta_program_error(program);
  if (status == code && (code == META_OK || (text[0] && meta_error_text(code)[0]))) return;
  printf("line %d: %s gave %d '%s', expected %d\n", line, call, status, text, code);
  ++failures;
}

/* An allocator that fails from the n-th request on; counts what is not released. */
static int requests, limit, living;
static void *allocate(void *context, size_t bytes, size_t alignment) {
  (void)context;
  if (requests++ >= limit) return NULL;
  ++living;
  return aligned_alloc(alignment, bytes);
}
static void release(void *context, void *memory) {
  (void)context;
  --living;
  free(memory);
}

static void write_file(const char *path, const void *data, size_t bytes) {
  FILE *file = fopen(path, "wb");
  if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file)) exit(2);
}

static void check_inputs(void) {
  meta_tensor good = TENSOR(x, META_FLOAT32, 4, 20), result = {0}, bad = good;
  EXPECT(meta_program_run(program, &good, 0, &result, 1), META_ERROR_COUNT);
  EXPECT(meta_program_run(program, &good, 2, &result, 1), META_ERROR_COUNT);
  EXPECT(meta_program_run(program, NULL, 1, &result, 1), META_ERROR_COUNT);
  EXPECT(meta_program_run(program, &good, 1, &result, 0), META_ERROR_COUNT);
  EXPECT(meta_program_run(program, &good, 1, NULL, 1), META_ERROR_COUNT);
  EXPECT(meta_program_run(NULL, &good, 1, &result, 1), META_ERROR_ARGUMENT);
  bad.dtype = META_INT32;
  EXPECT(meta_program_run(program, &bad, 1, &result, 1), META_ERROR_DTYPE);
  if (strstr(meta_program_error(program), "has dtype I32; expected F32") == NULL) exit(2);
  bad.dtype = 99;
  EXPECT(meta_program_run(program, &bad, 1, &result, 1), META_ERROR_DTYPE);
  bad = good, bad.ndim = 1;
  EXPECT(meta_program_run(program, &bad, 1, &result, 1), META_ERROR_SHAPE);
  bad = good, bad.ndim = 1 << 30;
  EXPECT(meta_program_run(program, &bad, 1, &result, 1), META_ERROR_SHAPE);
  bad = good, bad.shape[0] = -3;
  EXPECT(meta_program_run(program, &bad, 1, &result, 1), META_ERROR_SHAPE);
  bad = good, bad.shape[1] = 21;
  EXPECT(meta_program_run(program, &bad, 1, &result, 1), META_ERROR_SHAPE);
  bad = good, bad.data = x + 1;
  EXPECT(meta_program_run(program, &bad, 1, &result, 1), META_ERROR_ALIGNMENT);
  bad = good, bad.data = NULL;
  EXPECT(meta_program_run(program, &bad, 1, &result, 1), META_ERROR_ARGUMENT);
  meta_tensor other = TENSOR(y, META_FLOAT64, 4, 5);
  EXPECT(meta_program_run(program, &good, 1, &other, 1), META_ERROR_DTYPE);
  other = (meta_tensor)TENSOR(y, META_FLOAT32, 5, 4);
  EXPECT(meta_program_run(program, &good, 1, &other, 1), META_ERROR_SHAPE);
  other = (meta_tensor)TENSOR(y + 2, META_FLOAT32, 4, 5);
  EXPECT(meta_program_run(program, &good, 1, &other, 1), META_ERROR_ALIGNMENT);
  other = (meta_tensor)TENSOR(x, META_FLOAT32, 4, 5);
  EXPECT(meta_program_run(program, &good, 1, &other, 1), META_ERROR_ARGUMENT);
  other = (meta_tensor)TENSOR(y, META_FLOAT32, 4, 5);
  EXPECT(meta_program_run(program, &good, 1, &other, 1), META_OK);
  EXPECT(meta_program_run(program, &good, 1, &result, 1), META_OK);
  if (memcmp(y, result.data, 20 * sizeof *y)) printf("results differ\n"), ++failures;
}

static void check_files(const char *weights, const char *scratch) {
  static unsigned char data[1 << 20];
  FILE *file = fopen(weights, "rb");
  size_t size = file ? fread(data, 1, sizeof data, file) : 0;
  if (file == NULL || fclose(file) || size == 0 || size == sizeof data) exit(2);
  meta_tensor tensor, inputs = TENSOR(x, META_FLOAT32, 4, 20), result = {0};
  EXPECT(meta_program_run(program, &inputs, 1, &result, 1), META_ERROR_STATE);
  EXPECT(meta_program_load(program, "/nonexistent/file"), META_ERROR_FILE);
  EXPECT(meta_program_load(program, NULL), META_ERROR_ARGUMENT);
  EXPECT(meta_program_tensor(program, "no such name", &tensor), META_ERROR_NAME);
  for (size_t length = 0; length < size; length += length < 700 ? 1 : 997)
    EXPECT(meta_program_load_memory(program, data, length), META_ERROR_FORMAT);
  write_file(scratch, data, size - 1);
  EXPECT(meta_program_load(program, scratch), META_ERROR_FORMAT);
  static const char empty[] = "\2\0\0\0\0\0\0\0{}";
  EXPECT(meta_program_load_memory(program, empty, 10), META_ERROR_NAME);
  EXPECT(meta_program_run(program, &inputs, 1, &result, 1), META_ERROR_STATE);
  EXPECT(meta_program_load(program, weights), META_OK);
  EXPECT(meta_program_save(program, "/nonexistent/file"), META_ERROR_FILE);
  EXPECT(meta_program_save(program, scratch), META_OK);
  EXPECT(meta_program_load(program, scratch), META_OK);
  EXPECT(meta_program_load_memory(program, data, size), META_OK);
}

/* What is saved to memory is the file, and nothing is written to memory that is too small. */
static void check_saved(const char *scratch) {
  static unsigned char data[1 << 20], file_data[1 << 20];
  size_t size = meta_program_save_memory(program, NULL, 0);
  FILE *file = fopen(scratch, "rb");
  size_t file_size = file ? fread(file_data, 1, sizeof file_data, file) : 0;
  if (file == NULL || fclose(file) || size == 0 || size != file_size) exit(2);
  if (meta_program_save_memory(NULL, data, size) || meta_program_save_memory(program, data, size - 1) != size ||
      data[size - 1] || meta_program_save_memory(program, data, sizeof data) != size || memcmp(data, file_data, size))
    printf("saved memory differs from the file\n"), ++failures;
}

/* Results of a run may be passed to the next one. */
static void check_results(void) {
  const meta_parameter *parameter = meta_program_parameter(program, META_INPUT, 0);
  meta_tensor input = {x, {0}, parameter->ndim, parameter->dtype}, results[2] = {{0}, {0}};
  memcpy(input.shape, parameter->shape, (size_t)parameter->ndim * sizeof *parameter->shape);
  for (int i = 0; i < 2; ++i) EXPECT(meta_program_run(program, &input, 1, results, 1), META_OK);
  EXPECT(meta_program_run(program, &input, 1, &results[1], 1), META_OK);
  if (results[0].data != results[1].data) printf("memory of results has moved\n"), ++failures;
}

static void check_allocation(const char *weights) {
  meta_options options = {2, allocate, release, NULL};
  meta_tensor inputs = TENSOR(x, META_FLOAT32, 4, 20);
  for (limit = 0; limit < 40; ++limit) {
    meta_program *one = NULL;
    meta_tensor result = {0};
    requests = 0;
    int status = meta_program_open(&one, programs[0].code, &options);
    if (!status) status = meta_program_load(one, weights);
    if (!status) status = meta_program_run(one, &inputs, 1, &result, 1);
    if (status != META_OK && status != META_ERROR_MEMORY) printf("limit %d: %d\n", limit, status), ++failures;
    if (limit == 0 && status != META_ERROR_MEMORY) printf("no memory, and %d\n", status), ++failures;
    if (limit == 39 && status != META_OK) printf("enough memory, and %d\n", status), ++failures;
    meta_program_close(one);
    if (living) printf("limit %d: %d blocks are left\n", limit, living), ++failures;
  }
}

int main(int argc, char **argv) {
  char weights[1024], scratch[1024];
  if (argc != 2) return 2;
  snprintf(weights, sizeof weights, "%s/%s.safetensors", argv[1], programs[0].name);
  snprintf(scratch, sizeof scratch, "%s/scratch.safetensors", argv[1]);
  EXPECT(meta_program_open(NULL, programs[0].code, NULL), META_ERROR_ARGUMENT);
  EXPECT(meta_program_open(&program, NULL, NULL), META_ERROR_ARGUMENT);
  meta_options half = {0, allocate, NULL, NULL};
  EXPECT(meta_program_open(&program, programs[0].code, &half), META_ERROR_ARGUMENT);
  meta_program_code other = *programs[0].code;
  other.version += 1;
  EXPECT(meta_program_open(&program, &other, NULL), META_ERROR_VERSION);
  other.version -= 1, other.pointer_bytes = 2;
  EXPECT(meta_program_open(&program, &other, NULL), META_ERROR_VERSION);
  meta_program *second = NULL;
  EXPECT(meta_program_open(&second, programs[0].code, NULL), META_OK);
  EXPECT(meta_program_open(&program, programs[0].code, NULL), META_OK);
  check_files(weights, scratch);
  check_saved(scratch);
  check_inputs();
  check_results();
  meta_tensor inputs = TENSOR(x, META_FLOAT32, 4, 20), result = {0};
  if (meta_program_run(second, &inputs, 1, &result, 1) != META_ERROR_STATE) printf("programs share state\n"), ++failures;
  meta_program_close(second);
  meta_program_close(program);
  meta_program_close(NULL);
  program = NULL;
  check_allocation(weights);
  return failures ? 1 : 0;
}
