"""The example, the Makefile and the pkg-config file of a program as C."""

from __future__ import annotations

from math import prod

from meta.deploy.emit import ProgramText
from meta.deploy.toolchain import Toolchain

_EXAMPLE = """/* Runs {name} once, on inputs of zeros, and prints the beginning of its results: ./main [WEIGHTS] */
#include <stdio.h>
#include <string.h>

#include "{name}.h"

{memory}
int main(int argc, char **argv) {{
  meta_program *program = NULL;
  meta_tensor inputs[] = {{
{inputs}  }};
  meta_tensor results[{result_slots}];
  memset(results, 0, sizeof results);
  int code = meta_program_open(&program, &{name}_code, NULL);
  if (code) {{
    fprintf(stderr, "%s\\n", meta_program_error(NULL));
    return 1;
  }}
{load}  if (!code) code = meta_program_run(program, inputs, {input_count}, results, {result_count});
  if (code) fprintf(stderr, "%s\\n", meta_program_error(program));
  for (int i = 0; !code && i < {result_count}; ++i) {{
    long long elements = 1;
    printf("%s:", meta_program_parameter(program, META_RESULT, i)->name);
    for (int axis = 0; axis < results[i].ndim; ++axis) elements *= results[i].shape[axis];
    for (long long j = 0; j < elements && j < 8 && results[i].dtype == META_FLOAT32; ++j)
      printf(" %g", (double)((const float *)results[i].data)[j]);
    printf(" (%lld elements)\\n", elements);
  }}
  meta_program_close(program);
  return code ? 1 : 0;
}}
"""

_MAKEFILE = """# make; make CC=clang; {name} as a static library, and main, which runs it.
CC = {compiler}
AR = {archiver}
CFLAGS = -O2
LDLIBS = {libraries}
PROGRAM_FLAGS = -std=c11 -Wall -Wextra {flags} -Iruntime -I.
OBJECTS = {name}.o runtime/program.o runtime/threads.o runtime/weights.o

all: main

main: main.o lib{name}.a
	$(CC) $(PROGRAM_FLAGS) $(CFLAGS) $(LDFLAGS) main.o lib{name}.a $(LDLIBS) -o $@

lib{name}.a: $(OBJECTS) {kernels}
	rm -f $@
	$(AR) rcs $@ $(OBJECTS) {kernels}

runtime/%.o: runtime/%.c runtime/meta_program.h runtime/meta_runtime.h
	$(CC) $(PROGRAM_FLAGS) $(CFLAGS) -c $< -o $@

main.o {name}.o: %.o: %.c {name}.h runtime/meta_program.h runtime/meta_runtime.h
	$(CC) $(PROGRAM_FLAGS) $(CFLAGS) -c $< -o $@

clean:
	rm -f main main.o $(OBJECTS) lib{name}.a

.PHONY: all clean
"""

_PKG_CONFIG = """prefix=${{pcfiledir}}

Name: {name}
Description: A program compiled by meta
Version: {version}
Cflags: -I${{prefix}} -I${{prefix}}/runtime
Libs: -L${{prefix}} -l{name} {libraries}
"""


def example(name: str, text: ProgramText) -> str:
    """main.c. Sizes that are open are 2 in it."""
    memory: list[str] = []
    inputs: list[str] = []
    for i, each in enumerate(p for p in text.parameters if p.role == "input"):
        shape = [d if isinstance(d, int) else 2 for d in each.type.shape]
        memory.append(f"static _Alignas(META_ALIGNMENT) unsigned char input{i}[{max(8 * prod(shape), 1)}];\n")
        sizes = ", ".join(map(str, shape)) or "0"
        fields = f"input{i}, {{{sizes}}}, {len(shape)}, META_{each.type.dtype.upper()}"
        inputs.append(f"      {{{fields}}}, /* {_comment(each.name)} */\n")
    load = f'  code = meta_program_load(program, argc > 1 ? argv[1] : "{name}.safetensors");\n'
    results = sum(p.role == "result" for p in text.parameters)
    return _EXAMPLE.format(
        name=name, memory="".join(memory), inputs="".join(inputs) or "      {NULL, {0}, 0, 0},\n",
        input_count=len(inputs), result_count=results, result_slots=max(results, 1),
        load=load if text.weights else "  (void)argc, (void)argv;\n",
    )  # fmt: skip


def _comment(name: str) -> str:
    return name.replace("*/", "")


def makefile(name: str, tools: Toolchain, kernel_files: int) -> str:
    kernels = " ".join(f"{name}_kernels{i}.o" for i in range(kernel_files))
    return _MAKEFILE.format(
        name=name, compiler=tools.compiler, archiver=tools.archiver, kernels=kernels, flags=" ".join(tools.flags),
        libraries=" ".join(tools.libraries),
    )  # fmt: skip


def pkg_config(name: str, version: str) -> str:
    return _PKG_CONFIG.format(name=name, version=version, libraries="-lm -pthread")
