#include <stdio.h>

#include "net.h"

int main(void) {
  meta_program *program = NULL;
  int code = meta_program_open(&program, &net_code, NULL);
  if (code) return puts(meta_error_text(code)), 1;
  _Alignas(META_ALIGNMENT) float x[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  meta_tensor input = {x, {2, 4}, 2, META_FLOAT32}, result = {0};
  code = meta_program_load(program, "net/net.safetensors");
  if (!code) code = meta_program_run(program, &input, 1, &result, 1);
  if (code) return puts(meta_program_error(program)), 1;
  printf("%d axes: %.5f %.5f\n", result.ndim, ((float *)result.data)[0], ((float *)result.data)[1]);
  input.shape[0] = 3;
  if (meta_program_run(program, &input, 1, &result, 1)) puts(meta_program_error(program));
  meta_program_close(program);
}
