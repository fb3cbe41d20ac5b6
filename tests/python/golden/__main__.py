"""`python -m tests.python.golden [--write] [NAME ...]`: compare programs with their records, or write the records.

The records hold for any x86-64 processor with AVX2: the processor that kernels are compiled for, the instructions of
libraries and the number of threads are fixed, and dispatch knows no instruction set.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

EXPECTED = Path(__file__).parent / "expected"
PROCESSOR = "x86-64-v3"
ENVIRONMENT = {
    "META_CPU": PROCESSOR, "META_PROGRESS": "0", "CUDA_VISIBLE_DEVICES": "",
    "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE",
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"), "1"),
}  # fmt: skip
"""Read by the libraries when they are loaded."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 1 if a program differs from its record or has none, 2 for an unknown name, 3 on another processor."""
    parser = argparse.ArgumentParser(prog="python -m tests.python.golden", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="write the records in place of comparing")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all)")
    options = parser.parse_args(argv)
    os.environ.update(ENVIRONMENT)
    from meta.backend.tvm import target
    from meta.op import work
    from tests.python.golden.programs import PROGRAMS

    unknown = sorted(set(options.names) - set(PROGRAMS))
    if unknown:
        print(f"there is no program {', '.join(unknown)}; expected {', '.join(PROGRAMS)}")
        return 2
    if target.target("cpu").attrs["mcpu"] != PROCESSOR:
        print(f"this processor does not run code for {PROCESSOR}, which the records are of")
        return 3
    work._processor = lambda: ""
    return max([_handle(name, options.write) for name in options.names or PROGRAMS])


def _handle(name: str, write: bool) -> int:
    from tests.python.golden.programs import PROGRAMS
    from tests.python.golden.record import differences, parse, record, seed

    start = time.process_time()
    seed()
    actual = record(PROGRAMS[name]())
    path = EXPECTED / f"{name}.txt"
    seconds = f"{actual.sizes['kernels']} kernels, {time.process_time() - start:.1f} s"
    if write:
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(actual))
        print(f"{name}: written, {seconds}", flush=True)
        return 0
    found = differences(parse(path.read_text()), actual) if path.exists() else ["there is no record; use --write"]
    print(f"{name}: {'differs' if found else 'as recorded'}, {seconds}", *found, sep="\n", flush=True)
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
