/* Programs that meta compiled, called from C11 and C++.
 *
 *     #include "net.h"                                     written beside this file: const meta_program_code net_code
 *
 *     meta_program *program = NULL;
 *     int code = meta_program_open(&program, &net_code, NULL);
 *     if (!code) code = meta_program_load(program, "net.safetensors");
 *     meta_tensor x = {.data = pixels, .shape = {1, 28, 28}, .ndim = 3, .dtype = META_FLOAT32}, y = {0};
 *     if (!code) code = meta_program_run(program, &x, 1, &y, 1);
 *     if (code) fprintf(stderr, "%s\n", meta_program_error(program));
 *     meta_program_close(program);
 *
 * Functions return META_OK or a code of meta_error; meta_program_error has the text of the last error of a program.
 * A program belongs to one thread at a time. Different programs, also of the same code, run in different threads.
 */
#ifndef META_PROGRAM_H_
#define META_PROGRAM_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface and of generated programs, which are only opened by a runtime of their own version. */
#define META_PROGRAM_VERSION 2

enum {
  META_ALIGNMENT = 64, /* addresses of tensors are multiples of these bytes */
  META_MAX_AXES = 8    /* of tensors that a caller sees */
};

typedef enum {
  META_OK = 0,
  META_ERROR_VERSION,   /* the code was generated for another version of the runtime, or another machine */
  META_ERROR_ARGUMENT,  /* a null pointer, or memory that must not be shared */
  META_ERROR_COUNT,     /* the number of inputs or results */
  META_ERROR_DTYPE,     /* the dtype of a tensor */
  META_ERROR_SHAPE,     /* the number or the sizes of the axes of a tensor */
  META_ERROR_ALIGNMENT, /* the address of a tensor */
  META_ERROR_NAME,      /* a name that the program or the file does not have */
  META_ERROR_STATE,     /* weights that were not loaded */
  META_ERROR_MEMORY,    /* memory ran out */
  META_ERROR_FILE,      /* a file cannot be opened, read or written */
  META_ERROR_FORMAT,    /* a file that is not a whole file in the safetensors format */
  META_ERROR_KERNEL,    /* a kernel refused its arguments */
  META_ERROR_PROCESSOR  /* the processor lacks instructions that the kernels use */
} meta_error;

typedef enum {
  META_BOOL = 0, META_UINT8, META_UINT16, META_UINT32, META_UINT64, META_INT8, META_INT16, META_INT32, META_INT64,
  META_FLOAT16, META_BFLOAT16, META_FLOAT32, META_FLOAT64, META_COMPLEX64
} meta_dtype;

typedef enum {
  META_INPUT = 0, /* passed to each run */
  META_STATE,     /* memory of the program: parameters, buffers, the state of an optimizer */
  META_RANDOM,    /* int64[2]: seed and offset of a generator; runs advance the offset */
  META_CONSTANT,  /* memory of the program that no run changes */
  META_RESULT     /* returned by each run */
} meta_role;

/* A contiguous tensor in row-major order. */
typedef struct {
  void *data;
  int64_t shape[META_MAX_AXES];
  int32_t ndim;
  int32_t dtype;
} meta_tensor;

/* What a program takes, keeps and returns. shape: -1 for sizes that differ from call to call.
 * updated: whether runs write to it. */
typedef struct {
  const char *name;
  const int64_t *shape;
  int32_t ndim;
  int32_t dtype;
  int32_t role;
  int32_t updated;
} meta_parameter;

/* threads: the threads that run the loops of kernels, 0 for one; the calling thread is one of them.
 * allocate: returns memory that starts at a multiple of `alignment`, or NULL; release: takes it back.
 *   NULL for the C library's. */
typedef struct {
  int32_t threads;
  void *(*allocate)(void *context, size_t bytes, size_t alignment);
  void (*release)(void *context, void *memory);
  void *context;
} meta_options;

typedef struct meta_program meta_program;
typedef struct meta_program_code meta_program_code;

/* A program of its own state, from generated code. options: NULL for one thread and the C library's memory.
 * Weights that are not part of the code have to be loaded before the first run.
 * Errors: META_ERROR_VERSION, META_ERROR_PROCESSOR (on Linux, and on x86-64; not all instruction sets can be asked for),
 * META_ERROR_MEMORY, META_ERROR_ARGUMENT; *program is NULL then, and meta_program_error(NULL) has the text. */
int meta_program_open(meta_program **program, const meta_program_code *code, const meta_options *options);

/* Run once.
 *
 * inputs: `count` tensors in the order of meta_program_parameter(program, META_INPUT, i).
 * results: `result_count` tensors. Where data is NULL, or what the last run returned for the same result, it becomes
 *   memory of the program that is valid until the next run or close. Other memory is written to, and has to have the
 *   dtype and the sizes of the result.
 * Inputs that the program updates are written in place. After an error, results and updated tensors have
 * unspecified values if it is META_ERROR_KERNEL or META_ERROR_MEMORY, and are unchanged for other codes. */
int meta_program_run(meta_program *program, const meta_tensor *inputs, int count, meta_tensor *results,
                     int result_count);

/* Read the tensors of a file in the safetensors format that the program has by name. The header, and the length of
 * the file, are checked before a tensor changes.
 * Errors: META_ERROR_FILE, META_ERROR_FORMAT, META_ERROR_NAME (no tensor of the program is in the file),
 * META_ERROR_DTYPE, META_ERROR_SHAPE, META_ERROR_MEMORY. */
int meta_program_load(meta_program *program, const char *path);
int meta_program_load_memory(meta_program *program, const void *data, size_t size);

/* Write state, generators and constants to a file in the safetensors format. An older file stays until the new one is
 * complete. Errors: META_ERROR_FILE, META_ERROR_MEMORY. */
int meta_program_save(meta_program *program, const char *path);

/* The same file to memory, if it fits in `capacity`. Returns its bytes. */
size_t meta_program_save_memory(const meta_program *program, void *data, size_t capacity);
/* The same, of what runs write to: trained parameters, buffers, the state of an optimizer, generators. Loaded after the
 * file of all weights, it continues; a frozen base need not be written again. */
int meta_program_save_updated(meta_program *program, const char *path);

/* The i-th parameter of a role, NULL if there is none. */
const meta_parameter *meta_program_parameter(const meta_program *program, meta_role role, int index);

/* The memory of state, a generator or a constant, to read or write between runs. Error: META_ERROR_NAME. */
int meta_program_tensor(meta_program *program, const char *name, meta_tensor *tensor);

/* Restart the generators from a seed. */
void meta_program_seed(meta_program *program, int64_t seed);

/* The bytes that the program has allocated: tables, state, intermediate values and results. */
size_t meta_program_memory(const meta_program *program);

/* The text of the last error of a program, "" without one; for NULL, why the last program of this thread did not open. */
const char *meta_program_error(const meta_program *program);

/* What a code means, for errors of meta_program_open. */
const char *meta_error_text(int code);

/* Free a program and what it returned; NULL is ignored. */
void meta_program_close(meta_program *program);

#ifdef __cplusplus
}
#endif
#endif
