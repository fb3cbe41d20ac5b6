/* altered_calls FOLDER CALLS SEED: calls programs with arguments and files that are altered at random. Calls that are right
 * succeed; others return a code with a text and leave state and results as they were. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta_runtime.h"
#include "programs.h"

enum { PROGRAMS = sizeof programs / sizeof *programs, MOST = 8, OPEN_SIZES = 6, FILES = 1 << 18 };
#define FAIL(...) (printf("call %lld of %s: ", call_number, programs[chosen].name), printf(__VA_ARGS__), puts(""), exit(1))

static uint64_t state;
static long long call_number;
static int chosen, memory_fails;

static uint32_t draw(uint32_t limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % limit;
}

/* An allocator that refuses much memory, and some requests at random. */
static void *allocate(void *context, size_t bytes, size_t alignment) {
  (void)context;
  if (bytes > 1 << 24 || (memory_fails && !draw(30))) return NULL;
  return aligned_alloc(alignment, bytes);
}
static void release(void *context, void *memory) {
  (void)context;
  free(memory);
}

static size_t element_bytes(int32_t dtype) {
  static const size_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8};
  return sizes[dtype];
}

/* One opened program. file: its weights.  last_result: memory that its last call returned. */
static struct {
  meta_program *program;
  unsigned char *file;
  size_t file_bytes;
  void *last_result;
} opened[PROGRAMS];

static uint64_t hashed(uint64_t hash, const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
  return hash;
}

/* A number that changes with the state of a program. */
static uint64_t state_of(meta_program *program) {
  uint64_t hash = 14695981039346656037u;
  for (int role = META_STATE; role <= META_CONSTANT; ++role) {
    const meta_parameter *parameter;
    for (int i = 0; (parameter = meta_program_parameter(program, role, i)) != NULL; ++i) {
      meta_tensor tensor;
      if (meta_program_tensor(program, parameter->name, &tensor)) FAIL("'%s' has no memory", parameter->name);
      size_t bytes = element_bytes(tensor.dtype);
      for (int axis = 0; axis < tensor.ndim; ++axis) bytes *= (size_t)tensor.shape[axis];
      hash = hashed(hash, tensor.data, bytes);
    }
  }
  return hash;
}

static void check(int status, uint64_t before) {
  meta_program *program = opened[chosen].program;
  if (status < META_OK || status > META_ERROR_PROCESSOR) FAIL("returned %d", status);
  if (status == META_OK) return;
  if (!meta_program_error(program)[0] || !meta_error_text(status)[0]) FAIL("code %d has no text", status);
  if (status == META_ERROR_KERNEL) FAIL("a kernel refused: %s", meta_program_error(program));
  if (status != META_ERROR_MEMORY && state_of(program) != before) FAIL("code %d, and the state changed", status);
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

/* Tensors of a call. capacity: the bytes of memory of each. */
typedef struct {
  meta_tensor tensors[MOST];
  void *memory[MOST];
  size_t capacity[MOST];
  int count;
} arguments_t;

static arguments_t right_arguments(meta_role role) {
  arguments_t out;
  memset(&out, 0, sizeof out);
  const meta_parameter *parameter;
  for (; (parameter = meta_program_parameter(opened[chosen].program, role, out.count)) != NULL; ++out.count) {
    meta_tensor *tensor = &out.tensors[out.count];
    size_t bytes = element_bytes(parameter->dtype), full = bytes;
    tensor->ndim = parameter->ndim;
    tensor->dtype = parameter->dtype;
    for (int axis = 0; axis < parameter->ndim; ++axis) {
      int64_t size = parameter->shape[axis];
      tensor->shape[axis] = size < 0 ? 3 : size;
      bytes *= (size_t)tensor->shape[axis];
      full *= (size_t)(size < 0 ? 2 * OPEN_SIZES : size);
    }
    out.capacity[out.count] = full;
    tensor->data = out.memory[out.count] = aligned_alloc(META_ALIGNMENT, (full / META_ALIGNMENT + 1) * META_ALIGNMENT);
    memset(tensor->data, role == META_INPUT ? 0 : 7, full);
  }
  return out;
}

/* Alter a tensor. Returns 1 if the call is wrong then, 0 if it may be right. */
static int alter(arguments_t *arguments, meta_role role, int index) {
  static const int64_t sizes[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX / 2, INT64_MAX / 4, (int64_t)1 << 62, -(1 << 20)};
  meta_tensor *tensor = &arguments->tensors[index];
  const meta_parameter *parameter = meta_program_parameter(opened[chosen].program, role, index);
  int axis = parameter->ndim ? (int)draw((uint32_t)parameter->ndim) : 0;
  switch (draw(8)) {
    case 0:
      tensor->dtype = draw(2) ? (int32_t)draw(14) : (int32_t)(state >> 20);
      return tensor->dtype != parameter->dtype;
    case 1:
      tensor->ndim = draw(2) ? (int32_t)draw(10) : (int32_t)(state >> 20);
      return tensor->ndim != parameter->ndim;
    case 2:
      tensor->shape[axis] = sizes[draw(sizeof sizes / sizeof *sizes)];
      return parameter->ndim > 0;
    case 3:
    case 4: {
      if (parameter->ndim == 0) return 0;
      int64_t size = parameter->shape[axis], limit = size < 0 ? OPEN_SIZES : size + 3;
      tensor->shape[axis] = draw((uint32_t)limit);
      return size >= 0 && tensor->shape[axis] != size;
    }
    case 5:
      tensor->data = NULL;
      return 0; /* right for results, and tensors without elements */
    case 6:
      tensor->data = (char *)arguments->memory[index] + 1 + draw(META_ALIGNMENT - 1);
      return 1;
    default:
      tensor->data = (void *)(uintptr_t)0; /* results of the program's own */
      return 0;
  }
}

static void call_once(void) {
  meta_program *program = opened[chosen].program;
  arguments_t inputs = right_arguments(META_INPUT), results = right_arguments(META_RESULT);
  uint64_t before = state_of(program);
  int wrong = 0, altered = (int)draw(4), opens = 0;
  for (int i = 0; i < inputs.count; ++i)
    for (int axis = 0; axis < inputs.tensors[i].ndim; ++axis)
      opens |= meta_program_parameter(program, META_INPUT, i)->shape[axis] < 0;
  for (int i = 0; i < results.count; ++i)
    if (opens || draw(2)) results.tensors[i].data = NULL;
  int count = inputs.count, result_count = results.count;
  meta_tensor *taken = inputs.tensors, *given = results.tensors;
  for (int i = 0; i < altered; ++i) {
    uint32_t kind = draw(12);
    if (kind < 7 && inputs.count) wrong |= alter(&inputs, META_INPUT, (int)draw((uint32_t)inputs.count));
    else if (kind == 7) {
      int index = (int)draw((uint32_t)results.count);
      if (results.tensors[index].data) wrong |= alter(&results, META_RESULT, index) && results.tensors[index].data;
    } else if (kind == 8) count = (int)draw(2) ? (int)draw(12) : (int)state;
    else if (kind == 9) result_count = (int)draw(2) ? (int)draw(12) : (int)state;
    else if (kind == 10 && inputs.count && draw(2)) inputs.tensors[draw((uint32_t)inputs.count)].data = opened[chosen].last_result;
    else if (kind == 10 && draw(2)) results.tensors[draw((uint32_t)results.count)].data = opened[chosen].last_result;
    else if (kind == 10 && inputs.count) results.tensors[draw((uint32_t)results.count)].data = inputs.memory[0];
    else if (draw(2)) taken = NULL;
    else given = NULL;
  }
  wrong |= count != inputs.count || result_count != results.count || (!taken && inputs.count) || !given;
  /* An alteration may undo another: only what is wrong in one way is known to be. */
  int status = meta_program_run(program, taken, count, given, result_count);
  check(status, before);
  if (altered == 1 && wrong && status == META_OK) FAIL("a wrong call succeeded");
  if (altered == 0 && status == META_OK && draw(2)) { /* the same results again, in the program's memory or the caller's */
    before = state_of(program);
    status = meta_program_run(program, taken, count, given, result_count);
    check(status, before);
  }
  if (altered == 0 && status != META_OK && !(status == META_ERROR_MEMORY && memory_fails))
    FAIL("a right call gave %d: %s", status, meta_program_error(program));
  int returned = (int)draw((uint32_t)results.count);
  void *last = status == META_OK ? results.tensors[returned].data : NULL;
  opened[chosen].last_result = last == results.memory[returned] || (inputs.count && last == inputs.memory[0]) ? NULL : last;
  for (int i = 0; i < results.count; ++i) {
    const unsigned char *memory = results.memory[i];
    for (size_t j = 0; status && status != META_ERROR_MEMORY && j < results.capacity[i]; ++j)
      if (memory[j] != 7) FAIL("code %d, and a result changed", status);
  }
  for (int i = 0; i < inputs.count; ++i) free(inputs.memory[i]);
  for (int i = 0; i < results.count; ++i) free(results.memory[i]);
}

/* --- files, names and programs ----------------------------------------------------------------------------------- */

static void load_altered(const char *scratch) {
  meta_program *program = opened[chosen].program;
  size_t bytes = opened[chosen].file_bytes;
  uint64_t before = state_of(program);
  int shortened = draw(3) == 0;
  if (shortened) bytes = draw((uint32_t)bytes);
  unsigned char *data = malloc(bytes + !bytes);
  memcpy(data, opened[chosen].file, bytes);
  uint32_t header = data && bytes >= 8 ? 8 + data[0] + 256u * data[1] : 0;
  for (int i = (int)draw(4); i > 0 && header && bytes > header; --i) {
    static const char marks[] = "{}[]\",:0123456789\\u-eE .tfnFIU";
    data[draw(8) ? 8 + draw(header - 8) : draw(8)] = draw(2) ? (unsigned char)marks[draw(sizeof marks)] : (unsigned char)draw(256);
  }
  int status;
  FILE *file = draw(50) ? NULL : fopen(scratch, "wb");
  if (file == NULL) {
    status = meta_program_load_memory(program, data, bytes);
  } else {
    if (fwrite(data, 1, bytes, file) != bytes || fclose(file)) exit(2);
    status = meta_program_load(program, scratch);
  }
  check(status, before);
  if (shortened && status == META_OK) FAIL("a file of %zu bytes was read", bytes);
  free(data);
  if (meta_program_load_memory(program, opened[chosen].file, opened[chosen].file_bytes) && !memory_fails)
    FAIL("the right file was refused: %s", meta_program_error(program));
}

static void ask(void) {
  meta_program *program = opened[chosen].program;
  char name[12];
  meta_tensor tensor;
  for (size_t i = 0; i < sizeof name; ++i) name[i] = (char)draw(256);
  name[draw(sizeof name)] = 0;
  if (meta_program_tensor(draw(8) ? program : NULL, draw(8) ? name : NULL, draw(8) ? &tensor : NULL) == META_OK)
    if (!meta_program_parameter(program, META_STATE, 0)) FAIL("'%s' was found", name);
  meta_program_parameter(draw(8) ? program : NULL, (meta_role)draw(12), (int)state);
  meta_error_text((int)(state >> 10));
  meta_program_seed(draw(2) ? program : NULL, (int64_t)state);
}

static void reopen(void) {
  meta_program_code code = *programs[chosen].code;
  meta_options options = {(int32_t)draw(3), allocate, release, NULL};
  meta_program *other = (meta_program *)&code;
  int wrong = 1;
  switch (draw(6)) {
    case 0: code.version += 1 + (int32_t)draw(5); break;
    case 1: code.pointer_bytes = 12 - code.pointer_bytes; break;
    case 2: options.threads = -1 - (int32_t)draw(1 << 20); break;
    case 3: options.release = NULL; break;
    default: wrong = 0;
  }
  int status = meta_program_open(&other, &code, &options);
  if ((status == META_OK) != (other != NULL)) FAIL("code %d and a program", status);
  if (wrong && status == META_OK) FAIL("it opened");
  if (!wrong && status != META_OK && !(status == META_ERROR_MEMORY && memory_fails)) FAIL("it did not open: %d", status);
  meta_program_close(other);
}

static void prepare(const char *folder) {
  char path[1024];
  meta_options options = {0, allocate, release, NULL};
  if (meta_program_open(&opened[chosen].program, programs[chosen].code, &options)) FAIL("it did not open");
  snprintf(path, sizeof path, "%s/%s.safetensors", folder, programs[chosen].name);
  opened[chosen].file = malloc(FILES);
  FILE *file = fopen(path, "rb");
  opened[chosen].file_bytes = file ? fread(opened[chosen].file, 1, FILES, file) : 0;
  if (file) fclose(file);
  if (file && meta_program_load(opened[chosen].program, path)) FAIL("%s", meta_program_error(opened[chosen].program));
}

int main(int argc, char **argv) {
  char scratch[1024];
  if (argc != 4) return 2;
  snprintf(scratch, sizeof scratch, "%s/altered.safetensors", argv[1]);
  state = strtoull(argv[3], NULL, 10);
  for (chosen = 0; chosen < PROGRAMS; ++chosen) prepare(argv[1]);
  for (long long calls = atoll(argv[2]); call_number < calls; ++call_number) {
    chosen = (int)draw(PROGRAMS);
    memory_fails = !draw(8);
    uint32_t kind = draw(16);
    if (kind < 11) call_once();
    else if (kind < 13 && opened[chosen].file_bytes) load_altered(scratch);
    else if (kind < 15) ask();
    else reopen();
  }
  for (chosen = 0; chosen < PROGRAMS; ++chosen) {
    meta_program_close(opened[chosen].program);
    free(opened[chosen].file);
  }
  return 0;
}
