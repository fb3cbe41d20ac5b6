/* board: written by meta, for aarch64-linux-gnu (cortex-a72). */
#include "meta_runtime.h"

_Static_assert(sizeof(void *) == 8, "the kernels are for another machine");
#define TRY(call) do { int status = (call); if (status) return status; } while (0)

extern meta_kernel __tvm_ffi_board_dense1;
extern meta_kernel __tvm_ffi_board_fused_dense_tanh;

static const int64_t axes[] = {
  2, 4, 8, 4, 8, 2, 8, 2, 2, 2,
};
static const meta_parameter parameters[] = {
  {"x", axes + 0, 2, META_FLOAT32, META_INPUT, 0}, {"layers.0.w", axes + 2, 2, META_FLOAT32, META_STATE, 0},
  {"layers.0.b", axes + 4, 1, META_FLOAT32, META_STATE, 0}, {"layers.2.w", axes + 5, 2, META_FLOAT32, META_STATE, 0},
  {"layers.2.b", axes + 7, 1, META_FLOAT32, META_STATE, 0}, {"result.0", axes + 8, 2, META_FLOAT32, META_RESULT, 1},
};
static const uint32_t parameter_views[] = {
  1, 2, 3, 5, 6, 7,
};
static const uint32_t slots[] = {
  4, 1, 2, 3, 5, 6, 7,
};
static const meta_view_record views[] = {
  {0, 0, 0, 0, 0, 6, 8}, {0, 1, 0, 1, 2, 2, 32}, {0, 2, 0, 3, 2, 2, 32}, {0, 3, 0, 5, 1, 2, 32},
  {0, 0, 0, 6, 2, 2, 32}, {0, 4, 0, 6, 2, 2, 32}, {0, 5, 0, 8, 1, 2, 32}, {0, 6, 0, 9, 2, 2, 32},
};
static const int32_t arguments[] = {
  1, 2, 3, 4, 4, 5, 6, 7,
};
static const int64_t sizes[] = {
  0, 2, 4, 8, 4, 8, 2, 8, 2, 2, 2,
};
static const int64_t keys[] = {
  0,
};
static const struct meta_constant constants[] = {
  {0, NULL},
};

static int function_0(meta_program *p) {
  (void)p;
  TRY(meta_call(p, __tvm_ffi_board_fused_dense_tanh, p->values + 0, 4));
  TRY(meta_call(p, __tvm_ffi_board_dense1, p->values + 4, 4));
  return META_OK;
}

const meta_program_code board_code = {
    .version = META_PROGRAM_VERSION,
    .pointer_bytes = 8,
    .name = "board",
    .target = "aarch64-linux-gnu (cortex-a72)",
    .parameters = parameters,
    .parameter_views = parameter_views,
    .parameter_count = 6,
    .result_count = 1,
    .slots = slots,
    .views = views,
    .arguments = arguments,
    .sizes = sizes,
    .keys = keys,
    .weights = NULL,
    .constants = constants,
    .constant_count = 0,
    .slot_count = 7,
    .view_count = 8,
    .argument_count = 8,
    .size_count = 11,
    .opens = 0,
    .arena = 256,
    .measure = NULL,
    .run = function_0,
};
