/* driver FOLDER PROGRAM THREADS STEPS [TRAINED] < inputs > results: runs a program of programs.h so many times. Inputs are
 * read, and results are written, as the number of axes and sizes in 64 bits each, and elements. The bytes that the program
 * allocated are printed at the end. TRAINED: a file of what runs update, read if it exists and written at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs.h"

static int64_t read_number(void) {
  int64_t value = 0;
  if (fread(&value, sizeof value, 1, stdin) != 1) exit(3);
  return value;
}

static size_t bytes_of(const meta_tensor *tensor) {
  static const size_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8};
  size_t bytes = sizes[tensor->dtype];
  for (int i = 0; i < tensor->ndim; ++i) bytes *= (size_t)tensor->shape[i];
  return bytes;
}

static meta_tensor read_tensor(const meta_parameter *parameter) {
  meta_tensor tensor = {.dtype = parameter->dtype, .ndim = (int32_t)read_number()};
  for (int i = 0; i < tensor.ndim; ++i) tensor.shape[i] = read_number();
  size_t bytes = bytes_of(&tensor);
  if (bytes == 0) return tensor;
  tensor.data = aligned_alloc(META_ALIGNMENT, (bytes / META_ALIGNMENT + 1) * META_ALIGNMENT);
  if (fread(tensor.data, 1, bytes, stdin) != bytes) exit(3);
  return tensor;
}

static void write_tensor(const meta_tensor *tensor) {
  int64_t ndim = tensor->ndim;
  fwrite(&ndim, sizeof ndim, 1, stdout);
  fwrite(tensor->shape, sizeof *tensor->shape, (size_t)ndim, stdout);
  fwrite(tensor->data, 1, bytes_of(tensor), stdout);
}

static int load(meta_program *program, const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return META_OK;
  fclose(file);
  return meta_program_load(program, path);
}

int main(int argc, char **argv) {
  const meta_program_code *code = NULL;
  for (size_t i = 0; argc >= 5 && i < sizeof programs / sizeof *programs; ++i)
    if (!strcmp(programs[i].name, argv[2])) code = programs[i].code;
  if (code == NULL) return 2;
  char path[1024];
  snprintf(path, sizeof path, "%s/%s.safetensors", argv[1], argv[2]);
  meta_options options = {atoi(argv[3]), NULL, NULL, NULL};
  meta_program *program = NULL;
  int status = meta_program_open(&program, code, &options);
  if (!status) status = load(program, path);
  if (!status && argc > 5) status = load(program, argv[5]);
  int count = 0, result_count = 0;
  while (!status && meta_program_parameter(program, META_INPUT, count)) ++count;
  while (!status && meta_program_parameter(program, META_RESULT, result_count)) ++result_count;
  for (int step = 0; !status && step < atoi(argv[4]); ++step) {
    meta_tensor inputs[64], results[64];
    memset(results, 0, sizeof results);
    for (int i = 0; i < count; ++i) inputs[i] = read_tensor(meta_program_parameter(program, META_INPUT, i));
    status = meta_program_run(program, inputs, count, results, result_count);
    for (int i = 0; !status && i < result_count; ++i) write_tensor(&results[i]);
    for (int i = 0; i < count; ++i) free(inputs[i].data);
  }
  if (!status && argc > 5) status = meta_program_save_updated(program, argv[5]);
  fprintf(stderr, "memory %zu\n", meta_program_memory(program));
  if (status) fprintf(stderr, "%d %s\n", status, meta_program_error(program));
  meta_program_close(program);
  return status ? 1 : 0;
}
