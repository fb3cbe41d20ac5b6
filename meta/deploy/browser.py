"""Folders for browsers: a program in WebAssembly with its runtime, a module in JavaScript that runs it, and a page.

The module calls the functions of meta_program.h, so it reads the names and shapes of inputs from any program; its types
are written for each.
"""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import Final

from meta.deploy.emit import ProgramParameter, ProgramText

FOLDER: Final = Path(__file__).with_name("web")
"""The module and the page."""
STACK: Final = 1 << 20
"""Bytes, for local buffers of kernels."""
_FUNCTIONS: Final = (
    "aligned_alloc", "free", "meta_error_text", "meta_program_close", "meta_program_error", "meta_program_load_memory",
    "meta_program_memory", "meta_program_open", "meta_program_parameter", "meta_program_run",
    "meta_program_save_memory", "meta_program_seed", "meta_program_tensor",
)  # fmt: skip
_ARRAYS: Final = {
    "bool": "Uint8Array", "uint8": "Uint8Array", "uint16": "Uint16Array", "uint32": "Uint32Array",
    "uint64": "BigUint64Array", "int8": "Int8Array", "int16": "Int16Array", "int32": "Int32Array",
    "int64": "BigInt64Array", "float16": "Uint16Array", "bfloat16": "Uint16Array", "float32": "Float32Array",
    "float64": "Float64Array", "complex64": "Float32Array",
}  # fmt: skip


def link_flags(name: str) -> list[str]:
    """Flags of the linker for a module that imports nothing: the other printf of wasi-libc writes to files. The stack
    lies below all other memory, so that a call that overflows it ends."""
    exported = [f"-Wl,--export={symbol}" for symbol in (*_FUNCTIONS, f"{name}_code")]
    memory = f"-Wl,--stack-first,-z,stack-size={STACK},--strip-all"
    return ["-mexec-model=reactor", "-lc-printscan-long-double", memory, *exported]


def page_files(name: str, target: str, module: bytes, text: ProgramText) -> dict[str, bytes]:
    """The files of a folder, by name. module: the program in WebAssembly."""
    weights = "program.safetensors" if text.weights else ""
    page = Template((FOLDER / "index.html").read_text()).substitute(name=name, target=target, weights=weights)
    files = {"program.wasm": module, "program.d.ts": declarations(name, text).encode(), "index.html": page.encode()}
    return files | {file: (FOLDER / file).read_bytes() for file in ("program.js", "page.js", "page.css")}


def declarations(name: str, text: ProgramText) -> str:
    """program.d.ts: the types of program.js in TypeScript, with the inputs, the results and the state of a program."""
    inputs = "".join(f"  {json.dumps(p.name)}: {_input_type(p)};\n" for p in text.parameters if p.role == "input")
    results = ", ".join(f"Tensor<{_ARRAYS[p.type.dtype]}>" for p in text.parameters if p.role == "result")
    state = "".join(
        f"  {json.dumps(p.name)}: {_ARRAYS[p.type.dtype]};\n"
        for p in text.parameters
        if p.role not in ("input", "result")
    )
    template = Template((FOLDER / "program.d.ts").read_text())
    return template.substitute(name=name, inputs=inputs, results=results, state=state)


def _input_type(parameter: ProgramParameter) -> str:
    elements = _ARRAYS[parameter.type.dtype]
    is_open = not all(isinstance(d, int) for d in parameter.type.shape)
    return f"Shaped<{elements}>" if is_open else f"{elements} | Shaped<{elements}>"
