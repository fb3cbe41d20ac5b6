/* The form of generated programs, and what they call. Kernels take arguments in the layouts of TVM's FFI and DLPack,
 * which are declared here so that a device needs neither. */
#ifndef META_RUNTIME_H_
#define META_RUNTIME_H_

#include <string.h>

#include "meta_program.h"

/* DLTensor. */
typedef struct {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} meta_view;

/* TVMFFIAny: type 0 is nothing, 1 an integer, 7 a tensor. */
typedef struct {
  int32_t type;
  uint32_t padding;
  union {
    int64_t integer;
    void *pointer;
  } as;
} meta_value;

typedef int meta_kernel(void *self, const meta_value *arguments, int32_t count, meta_value *result);

/* Tensors have places in slots: 0 is the arena, the next are the parameters and the results, others follow.
 * next: the next view in the slot, 0 for none: view 0 is none.  shape: the place of its sizes. */
typedef struct {
  uint64_t offset;
  uint32_t slot, next, shape;
  uint8_t ndim, code, bits;
} meta_view_record;

/* parameters: in the order of roles, the results last; slot 1 + i is of parameter i.  slots: their first views.
 * arguments: of all kernel calls: a view, or ~n for the number sizes[n].
 * sizes: of the axes, and numbers.  opens: whether a run computes some of them.
 * weights: an image of the state, generators and constants, NULL if they are loaded.
 * constants: of functions, in their slots.
 * keys: how many keys a run draws from each generator.
 * missing: an instruction set that the kernels use and the processor lacks, or NULL. */
struct meta_program_code {
  int32_t version, pointer_bytes;
  const char *name, *target;
  const meta_parameter *parameters;
  const uint32_t *parameter_views;
  int32_t parameter_count, result_count;
  const uint32_t *slots;
  const meta_view_record *views;
  const int32_t *arguments;
  const int64_t *sizes;
  const int64_t *keys;
  const void *weights;
  const struct meta_constant {
    uint32_t slot;
    const void *data;
  } *constants;
  int32_t constant_count;
  int32_t slot_count, view_count, argument_count, size_count, opens;
  uint64_t arena;
  int (*measure)(meta_program *program, const meta_tensor *inputs);
  int (*run)(meta_program *program);
  const char *(*missing)(void);
};

enum { META_TEXT = 320, META_DTYPES = META_COMPLEX64 + 1 };

/* The names of dtypes in the safetensors format, by meta_dtype. */
extern const char *const meta_dtype_names[META_DTYPES];

/* Slots whose memory is not theirs, or is freed at the end of a run; and of weights that are loaded. */
typedef enum { META_BORROWED = 0, META_TEMPORARY, META_LOADED } meta_slot;

typedef struct {
  void *memory;
  size_t bytes;
} meta_block;

struct meta_program {
  const meta_program_code *code;
  meta_options options;
  meta_view *views;
  meta_value *values;
  int64_t *sizes;
  void **slots;       /* the memory of each slot */
  uint8_t *kinds;     /* of slots, see meta_slot */
  meta_block *kept;   /* memory for each result, until it has to grow */
  char *arena;
  char *state;        /* state, generators and constants */
  size_t state_bytes, allocated;
  void *team;         /* threads */
  int code_of_error;
  char text[META_TEXT];
};

/* Set the text of an error; returns the code. */
int meta_fail(meta_program *program, int code, const char *format, ...);

void *meta_allocate(meta_program *program, size_t bytes);
void meta_release(meta_program *program, void *memory);

/* Let the tensors of a slot start at `memory`. */
void meta_place(meta_program *program, uint32_t slot, void *memory);

/* Give a slot new memory for the tensor of a view; meta_drop frees it, and the end of a run. */
int meta_take(meta_program *program, uint32_t slot, uint32_t view);
void meta_drop(meta_program *program, uint32_t slot);

size_t meta_bytes(const meta_view *view);
void meta_copy(meta_program *program, uint32_t source, uint32_t target);

int meta_call(meta_program *program, meta_kernel *kernel, const meta_value *arguments, int32_t count);

/* --- loops ------------------------------------------------------------------------------------------------------- */

/* A value that a loop carries: the slots of the parameter and of the result of the step, the views of the first value,
 * of the last one, and of memory that steps write to in turn with the last one's. */
typedef struct {
  uint32_t parameter, result, first, last, spare;
} meta_carry;

/* Rows of a tensor that steps read or write. slot: of the step's parameter or result.  stack: the tensor's view.
 * row: a view of memory for a row that does not start at a multiple of META_ALIGNMENT; 0 if all do. */
typedef struct {
  uint32_t slot, stack, row;
} meta_rows;

void meta_begin(meta_program *program, const meta_carry *carries, int count, int64_t steps);
void meta_advance(meta_program *program, const meta_carry *carries, int count);
void meta_finish(meta_program *program, const meta_carry *carries, int count);
void meta_read_rows(meta_program *program, const meta_rows *rows, int count, int64_t index);
void meta_write_rows(meta_program *program, const meta_rows *rows, int count, int64_t index);
void meta_store_rows(meta_program *program, const meta_rows *rows, int count, int64_t index);

/* The value of a 0-d bool tensor. */
static inline int meta_is_true(const void *data) { return *(const uint8_t *)data != 0; }

/* Division that rounds down, and its remainder. */
static inline int64_t meta_floordiv(int64_t a, int64_t b) {
  return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t meta_floormod(int64_t a, int64_t b) { return a - meta_floordiv(a, b) * b; }

/* Sums and products of sizes; the largest number where they overflow, which no memory holds. */
static inline int64_t meta_sum(int64_t a, int64_t b) {
  int64_t c;
  return __builtin_add_overflow(a, b, &c) ? INT64_MAX : c;
}
static inline int64_t meta_product(int64_t a, int64_t b) {
  int64_t c;
  return __builtin_mul_overflow(a, b, &c) ? INT64_MAX : c;
}
static inline int64_t meta_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t meta_greatest(int64_t a, int64_t b) { return a < b ? b : a; }

/* --- threads ----------------------------------------------------------------------------------------------------- */

/* A team of threads, NULL if none could be started. */
void *meta_team_open(meta_program *program, int threads);
void meta_team_close(meta_program *program, void *team);

#endif
