/* two_threads: two threads with programs of their own, each with a team of two threads, give equal results. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "programs.h"

enum { STEPS = 30 };

typedef struct {
  int status;
  float result[130 * 90];
} outcome;

static void *work(void *argument) {
  outcome *out = argument;
  static const int64_t sizes[] = {130, 140, 90};
  _Alignas(META_ALIGNMENT) static _Thread_local float x[130 * 140], y[140 * 90];
  for (int i = 0; i < 130 * 140; ++i) x[i] = (float)(i % 7);
  for (int i = 0; i < 140 * 90; ++i) y[i] = (float)(i % 5);
  meta_options options = {2, NULL, NULL, NULL};
  meta_program *program = NULL;
  out->status = meta_program_open(&program, programs[0].code, &options);
  for (int step = 0; !out->status && step < STEPS; ++step) {
    meta_tensor inputs[2] = {{x, {sizes[0], sizes[1]}, 2, META_FLOAT32}, {y, {sizes[1], sizes[2]}, 2, META_FLOAT32}};
    meta_tensor results[3];
    memset(results, 0, sizeof results);
    out->status = meta_program_run(program, inputs, 2, results, 3);
    if (!out->status) memcpy(out->result, results[0].data, sizeof out->result);
  }
  if (out->status) printf("%s\n", meta_program_error(program));
  meta_program_close(program);
  return NULL;
}

int main(void) {
  static outcome outcomes[2];
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i)
    if (pthread_create(&threads[i], NULL, work, &outcomes[i])) return 2;
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  if (outcomes[0].status || outcomes[1].status) return 1;
  if (memcmp(outcomes[0].result, outcomes[1].result, sizeof outcomes[0].result)) return printf("differ\n"), 1;
  float sum = 0;
  for (int k = 0; k < 140; ++k) sum += (float)(k % 7) * (float)(k * 90 % 5);
  if (sum != outcomes[0].result[0]) return printf("%g %g\n", (double)sum, (double)outcomes[0].result[0]), 1;
  return 0;
}
