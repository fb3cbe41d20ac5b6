/* Times variants of a kernel in alternating rounds: ./measure ROUNDS prints a line for each variant, its nanoseconds in
 * the rounds. What it calls is in generated code, see meta/deploy/measure.py. */
#include "meta_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern meta_kernel *const meta_variants[];
extern const int32_t meta_variant_count, meta_tensor_count, meta_argument_count;
extern meta_view meta_tensors[];
/* Arguments of all variants: the number of a tensor, or ~n for the number meta_numbers[n]. */
extern const int32_t meta_arguments[];
extern const int64_t meta_numbers[];

enum { TURN = 1000000 }; /* nanoseconds that a variant runs in a round, at least */

static int rounds;

static double now(void) {
  struct timespec time;
  timespec_get(&time, TIME_UTC);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Floats from -1 to 1; zeros of other dtypes, which are valid positions. */
static int fill(meta_program *program, meta_view *view) {
  size_t bytes = meta_bytes(view);
  uint32_t state = 1;
  view->data = meta_allocate(program, bytes);
  if (view->data == NULL) return meta_fail(program, META_ERROR_MEMORY, "memory ran out");
  memset(view->data, 0, bytes);
  if (view->code != 2 || view->bits < 32) return META_OK;
  for (size_t i = 0; i < bytes / (view->bits / 8); ++i) {
    state = state * 1664525u + 1013904223u;
    double value = (double)(state >> 8) / (1 << 23) - 1;
    if (view->bits == 32) ((float *)view->data)[i] = (float)value;
    if (view->bits == 64) ((double *)view->data)[i] = value;
  }
  return META_OK;
}

static double turn(meta_program *program, meta_kernel *kernel, const meta_value *arguments, long count) {
  double start = now();
  for (long i = 0; i < count; ++i)
    if (meta_call(program, kernel, arguments, meta_argument_count)) return -1;
  return (now() - start) / (double)count;
}

static int measure(meta_program *program) {
  meta_value *arguments = meta_allocate(program, (size_t)meta_argument_count * sizeof *arguments);
  long *counts = meta_allocate(program, (size_t)meta_variant_count * sizeof *counts);
  double *times = meta_allocate(program, (size_t)(meta_variant_count * rounds) * sizeof *times);
  if (arguments == NULL || counts == NULL || times == NULL) return META_ERROR_MEMORY;
  for (int32_t i = 0; i < meta_tensor_count; ++i)
    if (fill(program, &meta_tensors[i])) return META_ERROR_MEMORY;
  for (int32_t i = 0; i < meta_argument_count; ++i) {
    int32_t place = meta_arguments[i];
    arguments[i] = (meta_value){place < 0 ? 1 : 7, 0, {0}};
    if (place < 0)
      arguments[i].as.integer = meta_numbers[~place];
    else
      arguments[i].as.pointer = &meta_tensors[place];
  }
  for (int32_t i = 0; i < meta_variant_count; ++i) {
    turn(program, meta_variants[i], arguments, 1);
    double once = turn(program, meta_variants[i], arguments, 1);
    if (once < 0) return META_ERROR_KERNEL;
    counts[i] = once > 0 && once < TURN ? (long)(TURN / once) : 1;
  }
  for (int round = 0; round < rounds; ++round)
    for (int32_t i = 0; i < meta_variant_count; ++i)
      times[i * rounds + round] = turn(program, meta_variants[i], arguments, counts[i]);
  for (int32_t i = 0; i < meta_variant_count; ++i, putchar('\n'))
    for (int round = 0; round < rounds; ++round) printf("%.1f ", times[i * rounds + round]);
  return META_OK;
}

int main(int argc, char **argv) {
  static const uint32_t slots[1];
  static const int64_t sizes[1];
  const meta_program_code code = {.slots = slots, .slot_count = 1, .sizes = sizes, .version = META_PROGRAM_VERSION, .pointer_bytes = sizeof(void *), .name = "measure",
                                  .target = "", .run = measure};
  meta_program *program = NULL;
  rounds = argc > 1 ? atoi(argv[1]) : 5;
  int status = meta_program_open(&program, &code, NULL);
  if (!status) status = meta_program_run(program, NULL, 0, NULL, 0);
  if (status) fprintf(stderr, "%s: %s\n", meta_error_text(status), meta_program_error(program));
  return status ? 1 : 0;
}
