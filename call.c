
#include <stdio.h>
#include "net.h"

int main(void) {
  _Alignas(META_ALIGNMENT) float x[8];
  for (int i = 0; i < 8; ++i) x[i] = -1 + i * (2.0f / 7);
  meta_program *program = NULL;
  meta_tensor input = {x, {2, 4}, 2, META_FLOAT32}, result = {0};
  if (meta_program_open(&program, &net_code, NULL)) return 1;
  int code = meta_program_load(program, "net/net.safetensors");
  if (!code) code = meta_program_run(program, &input, 1, &result, 1);
  if (code) return puts(meta_program_error(program)), 1;
  for (int i = 0; i < 4; ++i) printf("%.6f ", ((float*)result.data)[i]);
  meta_program_close(program);
}
