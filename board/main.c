/* Runs board once, on inputs of zeros, and prints the beginning of its results: ./main [WEIGHTS] */
#include <stdio.h>
#include <string.h>

#include "board.h"

static _Alignas(META_ALIGNMENT) unsigned char input0[64];

int main(int argc, char **argv) {
  meta_program *program = NULL;
  meta_tensor inputs[] = {
      {input0, {2, 4}, 2, META_FLOAT32}, /* x */
  };
  meta_tensor results[1];
  memset(results, 0, sizeof results);
  int code = meta_program_open(&program, &board_code, NULL);
  if (code) {
    fprintf(stderr, "%s\n", meta_error_text(code));
    return 1;
  }
  code = meta_program_load(program, argc > 1 ? argv[1] : "board.safetensors");
  if (!code) code = meta_program_run(program, inputs, 1, results, 1);
  if (code) fprintf(stderr, "%s\n", meta_program_error(program));
  for (int i = 0; !code && i < 1; ++i) {
    long long elements = 1;
    printf("%s:", meta_program_parameter(program, META_RESULT, i)->name);
    for (int axis = 0; axis < results[i].ndim; ++axis) elements *= results[i].shape[axis];
    for (long long j = 0; j < elements && j < 8 && results[i].dtype == META_FLOAT32; ++j)
      printf(" %g", (double)((const float *)results[i].data)[j]);
    printf(" (%lld elements)\n", elements);
  }
  meta_program_close(program);
  return code ? 1 : 0;
}
