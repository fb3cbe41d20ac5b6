/* The program net, to be opened with meta_program_open(&program, &net_code, NULL). */
#ifndef NET_H_
#define NET_H_

#include "meta_program.h"

#ifdef __cplusplus
extern "C" {
#endif
extern const meta_program_code net_code;
#ifdef __cplusplus
}
#endif
#endif
