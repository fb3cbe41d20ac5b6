/* The program board, to be opened with meta_program_open(&program, &board_code, NULL). */
#ifndef BOARD_H_
#define BOARD_H_

#include "meta_program.h"

#ifdef __cplusplus
extern "C" {
#endif
extern const meta_program_code board_code;
#ifdef __cplusplus
}
#endif
#endif
