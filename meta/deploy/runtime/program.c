/* Open, run and close programs, and what their kernels call. */
#include "meta_runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* --- errors ------------------------------------------------------------------------------------------------------ */

static _Thread_local meta_program *running; /* the program whose kernels this thread runs */

meta_program *meta_set_running(meta_program *program) {
  meta_program *before = running;
  running = program;
  return before;
}

int meta_fail(meta_program *program, int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(program->text, sizeof program->text, format, arguments);
  va_end(arguments);
  return program->code_of_error = code;
}

static _Thread_local char open_text[META_TEXT]; /* why the last program of this thread did not open */

const char *meta_program_error(const meta_program *program) { return program == NULL ? open_text : program->text; }

const char *meta_error_text(int code) {
  static const char *const texts[] = {
      "no error", "the code is of another version of the runtime, or for another machine", "an invalid argument",
      "a wrong number of tensors", "a wrong dtype", "a wrong shape", "an address that is not aligned",
      "an unknown name", "weights are not loaded", "memory ran out", "a file cannot be opened, read or written",
      "a file is not in the safetensors format, or not whole", "a kernel refused its arguments",
      "the processor lacks instructions that the kernels use"};
  return code >= 0 && code < (int)(sizeof texts / sizeof *texts) ? texts[code] : "an unknown code";
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

static void *default_allocate(void *context, size_t bytes, size_t alignment) {
  (void)context;
  return aligned_alloc(alignment, bytes);
}

static void default_release(void *context, void *memory) {
  (void)context;
  free(memory);
}

void *meta_allocate(meta_program *program, size_t bytes) {
  if (bytes > SIZE_MAX - META_ALIGNMENT) return NULL;
  size_t rounded = bytes < META_ALIGNMENT ? META_ALIGNMENT : (bytes + META_ALIGNMENT - 1) / META_ALIGNMENT * META_ALIGNMENT;
  return program->options.allocate(program->options.context, rounded, META_ALIGNMENT);
}

void meta_release(meta_program *program, void *memory) {
  if (memory != NULL) program->options.release(program->options.context, memory);
}

void meta_place(meta_program *program, uint32_t slot, void *memory) {
  program->slots[slot] = memory;
  for (uint32_t i = program->code->slots[slot]; i != 0; i = program->code->views[i].next)
    program->views[i].data = (char *)memory + program->code->views[i].offset;
}

/* The bytes of a tensor; SIZE_MAX where no memory could hold it. */
size_t meta_bytes(const meta_view *view) {
  size_t bytes = (size_t)(view->bits + 7) / 8;
  for (int32_t i = 0; i < view->ndim; ++i) {
    if (view->shape[i] <= 0) return 0;
    if ((uint64_t)view->shape[i] > (SIZE_MAX - META_ALIGNMENT) / bytes) return SIZE_MAX;
    bytes *= (size_t)view->shape[i];
  }
  return bytes;
}

int meta_take(meta_program *program, uint32_t slot, uint32_t view) {
  size_t bytes = meta_bytes(&program->views[view]);
  meta_drop(program, slot);
  void *memory = meta_allocate(program, bytes);
  if (memory == NULL)
    return meta_fail(program, META_ERROR_MEMORY, "memory ran out: a tensor needs %llu bytes", (unsigned long long)bytes);
  program->kinds[slot] = META_TEMPORARY;
  meta_place(program, slot, memory);
  return META_OK;
}

void meta_drop(meta_program *program, uint32_t slot) {
  if (program->kinds[slot] != META_TEMPORARY) return;
  meta_release(program, program->slots[slot]);
  program->kinds[slot] = META_BORROWED;
  program->slots[slot] = NULL;
}

void meta_copy(meta_program *program, uint32_t source, uint32_t target) {
  const meta_view *from = &program->views[source], *to = &program->views[target];
  if (from->data != to->data) memcpy(to->data, from->data, meta_bytes(from));
}

/* --- open and close ---------------------------------------------------------------------------------------------- */

/* The bytes of a parameter, rounded to the next place in the block of weights; 0 for those that are not in it. */
static size_t weight_bytes(const meta_program *program, int32_t i) {
  int32_t role = program->code->parameters[i].role;
  if (role == META_INPUT || role == META_RESULT) return 0;
  size_t bytes = meta_bytes(&program->views[program->code->parameter_views[i]]);
  return (bytes + META_ALIGNMENT - 1) / META_ALIGNMENT * META_ALIGNMENT;
}

static int open_tables(meta_program *program) {
  const meta_program_code *code = program->code;
  size_t views = (size_t)code->view_count, values = (size_t)code->argument_count, sizes = (size_t)code->size_count;
  program->views = meta_allocate(program, views * sizeof *program->views);
  program->values = meta_allocate(program, values * sizeof *program->values);
  program->slots = meta_allocate(program, (size_t)code->slot_count * sizeof *program->slots);
  program->kinds = meta_allocate(program, (size_t)code->slot_count);
  size_t kept = (size_t)code->result_count * sizeof *program->kept;
  program->kept = meta_allocate(program, kept);
  if (program->kept) memset(program->kept, 0, kept);
  program->sizes = code->opens ? meta_allocate(program, sizes * sizeof *program->sizes) : (int64_t *)(uintptr_t)code->sizes;
  if (!program->views || !program->values || !program->slots || !program->kinds || !program->sizes ||
      !program->kept)
    return META_ERROR_MEMORY;
  if (code->opens) memcpy(program->sizes, code->sizes, sizes * sizeof *program->sizes);
  memset(program->slots, 0, (size_t)code->slot_count * sizeof *program->slots);
  memset(program->kinds, META_BORROWED, (size_t)code->slot_count);
  for (size_t i = 0; i < views; ++i) {
    const meta_view_record *record = &code->views[i];
    program->views[i] = (meta_view){NULL, 1, 0, record->ndim, record->code, record->bits, 1,
                                    program->sizes + record->shape, NULL, 0};
  }
  for (size_t i = 0; i < values; ++i) {
    int32_t argument = code->arguments[i];
    meta_value *value = &program->values[i];
    *value = (meta_value){argument < 0 ? 1 : 7, 0, {0}};
    if (argument < 0) value->as.integer = program->sizes[~argument];
    else value->as.pointer = &program->views[argument];
  }
  program->allocated = views * sizeof *program->views + values * sizeof *program->values + (code->opens ? sizes * 8 : 0);
  return META_OK;
}

static int open_memory(meta_program *program) {
  const meta_program_code *code = program->code;
  for (int32_t i = 0; i < code->parameter_count; ++i) program->state_bytes += weight_bytes(program, i);
  program->state = meta_allocate(program, program->state_bytes);
  program->arena = code->arena > SIZE_MAX ? NULL : meta_allocate(program, (size_t)code->arena);
  if (!program->state || !program->arena) return META_ERROR_MEMORY;
  program->allocated += program->state_bytes + (size_t)code->arena;
  if (code->weights != NULL) memcpy(program->state, code->weights, program->state_bytes);
  meta_place(program, 0, program->arena);
  for (int32_t i = 0; i < code->constant_count; ++i)
    meta_place(program, code->constants[i].slot, (void *)(uintptr_t)code->constants[i].data);
  size_t offset = 0;
  for (int32_t i = 0; i < code->parameter_count; ++i) {
    int32_t role = code->parameters[i].role;
    if (role == META_INPUT || role == META_RESULT) continue;
    if (code->weights != NULL) program->kinds[1 + i] = META_LOADED;
    meta_place(program, (uint32_t)(1 + i), program->state + offset);
    offset += weight_bytes(program, i);
  }
  return META_OK;
}

static int open_program(meta_program **out, const meta_program_code *code, const meta_options *options) {
  if (out == NULL || code == NULL) return META_ERROR_ARGUMENT;
  *out = NULL;
  if (code->version != META_PROGRAM_VERSION || code->pointer_bytes != (int32_t)sizeof(void *)) return META_ERROR_VERSION;
  if (code->missing != NULL && code->missing() != NULL) return META_ERROR_PROCESSOR;
  meta_options chosen = options == NULL ? (meta_options){0, NULL, NULL, NULL} : *options;
  if ((chosen.allocate == NULL) != (chosen.release == NULL) || chosen.threads < 0) return META_ERROR_ARGUMENT;
  if (chosen.allocate == NULL) {
    chosen.allocate = default_allocate;
    chosen.release = default_release;
  }
  meta_program head = {.code = code, .options = chosen}, *program = meta_allocate(&head, sizeof head);
  if (program == NULL) return META_ERROR_MEMORY;
  *program = head;
  int status = open_tables(program);
  if (!status) status = open_memory(program);
  if (status) {
    meta_program_close(program);
    return status;
  }
  if (chosen.threads > 1) program->team = meta_team_open(program, chosen.threads);
  *out = program;
  return META_OK;
}

int meta_program_open(meta_program **out, const meta_program_code *code, const meta_options *options) {
  int status = open_program(out, code, options);
  const char *missing = status == META_ERROR_PROCESSOR ? code->missing() : NULL;
  if (missing != NULL)
    snprintf(open_text, sizeof open_text, "%s is for %s; this processor lacks %s", code->name, code->target, missing);
  else if (status == META_ERROR_VERSION)
    snprintf(open_text, sizeof open_text, "%s is of version %d for %s; the runtime has version %d", code->name,
             (int)code->version, code->target, META_PROGRAM_VERSION);
  else
    snprintf(open_text, sizeof open_text, "%s", status ? meta_error_text(status) : "");
  return status;
}

void meta_program_close(meta_program *program) {
  if (program == NULL) return;
  meta_team_close(program, program->team);
  for (int32_t i = 0; program->slots && program->kinds && i < program->code->slot_count; ++i)
    if (program->kinds[i] == META_TEMPORARY) meta_release(program, program->slots[i]);
  for (int32_t i = 0; program->kept && i < program->code->result_count; ++i) meta_release(program, program->kept[i].memory);
  meta_release(program, program->kept);
  meta_release(program, program->arena);
  meta_release(program, program->state);
  if (program->code->opens) meta_release(program, program->sizes);
  meta_release(program, program->kinds);
  meta_release(program, program->slots);
  meta_release(program, program->values);
  meta_release(program, program->views);
  meta_release(program, program);
}

/* --- parameters -------------------------------------------------------------------------------------------------- */

const meta_parameter *meta_program_parameter(const meta_program *program, meta_role role, int index) {
  if (program == NULL || index < 0) return NULL;
  for (int32_t i = 0; i < program->code->parameter_count; ++i)
    if (program->code->parameters[i].role == (int32_t)role && index-- == 0) return &program->code->parameters[i];
  return NULL;
}

int meta_program_tensor(meta_program *program, const char *name, meta_tensor *tensor) {
  if (program == NULL || name == NULL || tensor == NULL) return META_ERROR_ARGUMENT;
  for (int32_t i = 0; i < program->code->parameter_count; ++i) {
    const meta_parameter *parameter = &program->code->parameters[i];
    if (parameter->role == META_INPUT || parameter->role == META_RESULT || strcmp(parameter->name, name)) continue;
    *tensor = (meta_tensor){program->slots[1 + i], {0}, parameter->ndim, parameter->dtype};
    memcpy(tensor->shape, parameter->shape, (size_t)parameter->ndim * sizeof *tensor->shape);
    program->kinds[1 + i] = META_LOADED;
    return META_OK;
  }
  return meta_fail(program, META_ERROR_NAME, "there is no state or constant '%.80s' in %s", name, program->code->name);
}

void meta_program_seed(meta_program *program, int64_t seed) {
  for (int32_t i = 0; program != NULL && i < program->code->parameter_count; ++i) {
    if (program->code->parameters[i].role != META_RANDOM) continue;
    int64_t key[2] = {seed, 0};
    memcpy(program->slots[1 + i], key, sizeof key);
    program->kinds[1 + i] = META_LOADED;
  }
}

size_t meta_program_memory(const meta_program *program) { return program == NULL ? 0 : program->allocated; }

/* --- run --------------------------------------------------------------------------------------------------------- */

/* More elements than memory has: of open sizes that a caller cannot mean. */
#define MOST_ELEMENTS (sizeof(void *) > 4 ? INT64_C(1) << 48 : INT64_C(1) << 31)

const char *const meta_dtype_names[META_DTYPES] = {"BOOL", "U8",  "U16",  "U32", "U64", "I8",  "I16",
                                                   "I32",  "I64", "F16", "BF16", "F32", "F64", "C64"};

static int check_tensor(meta_program *program, const meta_parameter *parameter, const meta_tensor *tensor) {
  if (tensor->dtype != parameter->dtype) {
    int is_known = tensor->dtype >= 0 && tensor->dtype < META_DTYPES;
    return meta_fail(program, META_ERROR_DTYPE, "'%s' has dtype %s; expected %s", parameter->name,
                     is_known ? meta_dtype_names[tensor->dtype] : "unknown",
                     meta_dtype_names[parameter->dtype]);
  }
  if (tensor->ndim != parameter->ndim)
    return meta_fail(program, META_ERROR_SHAPE, "'%s' has %d axes; expected %d", parameter->name, (int)tensor->ndim,
                     (int)parameter->ndim);
  int empty = 0;
  for (int32_t i = 0; i < parameter->ndim; ++i) {
    int64_t size = tensor->shape[i], expected = parameter->shape[i];
    if (expected < 0 ? size < 0 || size > MOST_ELEMENTS : size != expected)
      return meta_fail(program, META_ERROR_SHAPE, "axis %d of '%s' has the size %lld; expected %lld", (int)i,
                       parameter->name, (long long)size, (long long)expected);
    empty |= size == 0;
  }
  if (tensor->data == NULL && !empty)
    return meta_fail(program, META_ERROR_ARGUMENT, "the data of '%s' is NULL", parameter->name);
  if ((uintptr_t)tensor->data % META_ALIGNMENT)
    return meta_fail(program, META_ERROR_ALIGNMENT, "'%s' does not start at a multiple of %d bytes", parameter->name,
                     META_ALIGNMENT);
  return META_OK;
}

/* Whether a block, and the memory of a parameter or result, overlap. */
static int overlap(const meta_program *program, int32_t i, const void *memory, size_t bytes) {
  size_t own = meta_bytes(&program->views[program->code->parameter_views[i]]);
  uintptr_t x = (uintptr_t)program->slots[1 + i], y = (uintptr_t)memory;
  return x && y && x < y + bytes && y < x + own;
}

/* Refuse memory of the caller that is written, and is part of another tensor of the call or of the program; and memory
 * that the last run returned, as another tensor than the same result. Results of the program's own have no memory yet. */
static int check_overlaps(meta_program *program) {
  const meta_program_code *code = program->code;
  int32_t first = code->parameter_count - code->result_count;
  for (int32_t i = 0; i < code->parameter_count; ++i) {
    const meta_parameter *one = &code->parameters[i];
    if (one->role != META_INPUT && one->role != META_RESULT) continue;
    for (int32_t j = 0; j < code->parameter_count; ++j) {
      const meta_parameter *other = &code->parameters[j];
      size_t bytes = meta_bytes(&program->views[code->parameter_views[j]]);
      int written = one->role == META_RESULT || one->updated || other->role == META_RESULT || other->updated;
      int shared = i != j && written && overlap(program, i, program->slots[1 + j], bytes);
      if (j >= first) shared |= overlap(program, i, program->kept[j - first].memory, program->kept[j - first].bytes);
      if (shared)
        return meta_fail(program, META_ERROR_ARGUMENT, "'%s' and '%s' share memory, and a run writes to one of them",
                         one->name, other->name);
    }
  }
  return META_OK;
}

/* Place results in memory of the caller, or else in blocks that stay for the next run. */
static int place_results(meta_program *program, const meta_tensor *results, int32_t first) {
  const meta_program_code *code = program->code;
  for (int32_t i = first; i < code->parameter_count; ++i) {
    const meta_tensor *result = &results[i - first];
    meta_parameter expected = code->parameters[i];
    expected.shape = program->views[code->parameter_views[i]].shape;
    program->slots[1 + i] = NULL;
    if (result->data == NULL || result->data == program->kept[i - first].memory) continue;
    int status = check_tensor(program, &expected, result);
    if (status) return status;
    meta_place(program, (uint32_t)(1 + i), result->data);
  }
  int status = check_overlaps(program);
  for (int32_t i = first; !status && i < code->parameter_count; ++i) {
    meta_block *kept = &program->kept[i - first];
    size_t bytes = meta_bytes(&program->views[code->parameter_views[i]]);
    if (program->slots[1 + i] != NULL) continue;
    if (kept->memory == NULL || kept->bytes < bytes) {
      meta_release(program, kept->memory);
      program->allocated -= kept->bytes;
      *kept = (meta_block){meta_allocate(program, bytes), bytes};
      program->allocated += bytes;
      if (kept->memory == NULL)
        return meta_fail(program, META_ERROR_MEMORY, "memory ran out: a result needs %llu bytes", (unsigned long long)bytes);
    }
    meta_place(program, (uint32_t)(1 + i), kept->memory);
  }
  return status;
}

/* Where inputs without elements are, whose data may be NULL: programs compute addresses in them. */
static _Alignas(META_ALIGNMENT) char nothing[META_ALIGNMENT];

static int prepare(meta_program *program, const meta_tensor *inputs, int count, const meta_tensor *results,
                   int result_count) {
  const meta_program_code *code = program->code;
  int32_t expected = 0, first = code->parameter_count - code->result_count;
  while (expected < first && code->parameters[expected].role == META_INPUT) ++expected;
  if (count != expected || (count > 0 && inputs == NULL))
    return meta_fail(program, META_ERROR_COUNT, "%d inputs; %s takes %d", count, code->name, (int)expected);
  if (result_count != code->result_count || (result_count > 0 && results == NULL))
    return meta_fail(program, META_ERROR_COUNT, "%d results; %s returns %d", result_count, code->name,
                     (int)code->result_count);
  for (int32_t i = 0; i < count; ++i) {
    int status = check_tensor(program, &code->parameters[i], &inputs[i]);
    if (status) return status;
    meta_place(program, (uint32_t)(1 + i), inputs[i].data == NULL ? nothing : inputs[i].data);
  }
  for (int32_t i = expected; i < first; ++i)
    if (program->kinds[1 + i] != META_LOADED)
      return meta_fail(program, META_ERROR_STATE, "'%s' has no values; load weights first", code->parameters[i].name);
  if (code->measure != NULL) {
    int status = code->measure(program, inputs);
    if (status) return status;
  }
  return place_results(program, results, first);
}

int meta_program_run(meta_program *program, const meta_tensor *inputs, int count, meta_tensor *results,
                     int result_count) {
  if (program == NULL) return META_ERROR_ARGUMENT;
  const meta_program_code *code = program->code;
  program->code_of_error = META_OK;
  program->text[0] = 0;
  int status = prepare(program, inputs, count, results, result_count);
  if (!status) {
    meta_program *before = meta_set_running(program);
    status = code->run(program);
    meta_set_running(before);
  }
  for (int32_t i = 1 + code->parameter_count; i < code->slot_count; ++i) meta_drop(program, (uint32_t)i);
  if (status) return status;
  int32_t first = code->parameter_count - code->result_count;
  for (int32_t i = 0, generator = 0; i < first; ++i) {
    if (code->parameters[i].role != META_RANDOM) continue;
    int64_t *key = program->slots[1 + i];
    key[1] = (int64_t)((uint64_t)key[1] + (uint64_t)code->keys[generator++]);
  }
  for (int32_t i = 0; i < result_count; ++i) {
    const meta_parameter *parameter = &code->parameters[first + i];
    const meta_view *view = &program->views[code->parameter_views[first + i]];
    results[i].data = program->slots[1 + first + i];
    results[i].ndim = parameter->ndim;
    results[i].dtype = parameter->dtype;
    memcpy(results[i].shape, view->shape, (size_t)parameter->ndim * sizeof *view->shape);
  }
  return META_OK;
}

int meta_call(meta_program *program, meta_kernel *kernel, const meta_value *arguments, int32_t count) {
  meta_value result = {0, 0, {0}};
  if (kernel(NULL, arguments, count, &result) == 0) return META_OK;
  if (program->text[0] == 0) return meta_fail(program, META_ERROR_KERNEL, "a kernel failed");
  return program->code_of_error;
}

/* --- loops ------------------------------------------------------------------------------------------------------- */

void meta_begin(meta_program *program, const meta_carry *carries, int count, int64_t steps) {
  for (int i = 0; i < count; ++i) {
    const meta_carry *carry = &carries[i];
    meta_place(program, carry->parameter, program->views[carry->first].data);
    meta_place(program, carry->result, program->views[steps % 2 ? carry->last : carry->spare].data);
  }
}

void meta_advance(meta_program *program, const meta_carry *carries, int count) {
  for (int i = 0; i < count; ++i) {
    const meta_carry *carry = &carries[i];
    void *written = program->slots[carry->result], *last = program->views[carry->last].data;
    meta_place(program, carry->parameter, written);
    meta_place(program, carry->result, written == last ? program->views[carry->spare].data : last);
  }
}

void meta_finish(meta_program *program, const meta_carry *carries, int count) {
  for (int i = 0; i < count; ++i) {
    const meta_view *last = &program->views[carries[i].last];
    void *value = program->slots[carries[i].parameter];
    if (value != last->data) memcpy(last->data, value, meta_bytes(last));
  }
}

static char *row_of(const meta_program *program, const meta_rows *rows, int64_t index, size_t *bytes) {
  const meta_view *stack = &program->views[rows->stack];
  *bytes = meta_bytes(stack) / (size_t)stack->shape[0];
  return (char *)stack->data + *bytes * (size_t)index;
}

void meta_read_rows(meta_program *program, const meta_rows *rows, int count, int64_t index) {
  for (int i = 0; i < count; ++i) {
    size_t bytes;
    char *row = row_of(program, &rows[i], index, &bytes);
    if (rows[i].row) row = memcpy(program->views[rows[i].row].data, row, bytes);
    meta_place(program, rows[i].slot, row);
  }
}

void meta_write_rows(meta_program *program, const meta_rows *rows, int count, int64_t index) {
  for (int i = 0; i < count; ++i) {
    size_t bytes;
    char *row = row_of(program, &rows[i], index, &bytes);
    meta_place(program, rows[i].slot, rows[i].row ? program->views[rows[i].row].data : row);
  }
}

void meta_store_rows(meta_program *program, const meta_rows *rows, int count, int64_t index) {
  for (int i = 0; i < count; ++i) {
    size_t bytes;
    char *row = row_of(program, &rows[i], index, &bytes);
    if (rows[i].row) memcpy(row, program->views[rows[i].row].data, bytes);
  }
}

/* --- what kernels call ------------------------------------------------------------------------------------------- */

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count);
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text);
void *TVMBackendAllocWorkspace(int device, int index, uint64_t bytes, int code, int bits);
int TVMBackendFreeWorkspace(int device, int index, void *memory);

/* Kernels call some functions by variables of theirs, which are weak. */
extern void (*__TVMFFIErrorSetRaisedFromCStrParts)(const char *, const char **, int32_t);
extern void (*__TVMFFIErrorSetRaisedFromCStr)(const char *, const char *);
extern void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
extern int (*__TVMBackendFreeWorkspace)(int, int, void *);
void (*__TVMFFIErrorSetRaisedFromCStrParts)(const char *, const char **, int32_t) = TVMFFIErrorSetRaisedFromCStrParts;
void (*__TVMFFIErrorSetRaisedFromCStr)(const char *, const char *) = TVMFFIErrorSetRaisedFromCStr;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = TVMBackendAllocWorkspace;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = TVMBackendFreeWorkspace;

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  (void)kind;
  meta_program *program = running;
  if (program == NULL || program->text[0]) return; /* the first error stays */
  char text[META_TEXT];
  size_t length = 0;
  for (int32_t i = 0; i < count; ++i)
    for (const char *c = parts[i] ? parts[i] : ""; *c && length + 1 < sizeof text; ++c) text[length++] = *c;
  text[length] = 0;
  meta_fail(program, META_ERROR_KERNEL, "%s", length ? text : "a kernel failed");
}

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, &text, 1);
}

void *TVMBackendAllocWorkspace(int device, int index, uint64_t bytes, int code, int bits) {
  (void)device, (void)index, (void)code, (void)bits;
  meta_program *program = running;
  void *memory = program == NULL || bytes > SIZE_MAX ? NULL : meta_allocate(program, (size_t)bytes);
  if (memory == NULL && program != NULL)
    meta_fail(program, META_ERROR_MEMORY, "memory ran out: a kernel needs %llu bytes for intermediate values",
              (unsigned long long)bytes);
  return memory;
}

int TVMBackendFreeWorkspace(int device, int index, void *memory) {
  (void)device, (void)index;
  if (running != NULL) meta_release(running, memory);
  return 0;
}
