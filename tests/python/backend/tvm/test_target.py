"""The processor that kernels are compiled for: META_CPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm import cpu as cpus

_CODE = """
import meta
with meta.with_dialect("tvm"):
    assert meta.array([1.0, 2.0]).sum().item() == 3.0
from meta.backend.tvm import target
print(target.target("cpu").attrs["mcpu"], target.describe_processor().splitlines()[0])
"""


def run_with(processor: str) -> tuple[str, str]:
    """(output, warnings) of a process that runs a kernel for META_CPU."""
    environment = {**os.environ, "META_CPU": processor, "META_CACHE": "0"}
    done = subprocess.run([sys.executable, "-c", _CODE], env=environment, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="names a processor of x86-64")
def test_kernels_for_a_processor() -> None:
    output, _ = run_with("x86-64-v2")
    name, *description = output.split()
    assert name == "x86-64-v2"
    assert description[-1] == "x86-64-v2", "a digest of compiled code that lacks the processor"


def test_unknown_processors_are_ignored_with_a_warning() -> None:
    output, warnings = run_with("nonesuch")
    assert output.split()[0] == tvm.system_cpu()
    assert f"META_CPU='nonesuch' is no processor that LLVM knows; {tvm.system_cpu()} is used" in warnings


def test_processors_with_more_instructions_are_ignored_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm, "system_cpu", lambda: "x86-64-v2")
    monkeypatch.setenv("META_CPU", "x86-64-v3")
    with pytest.warns(UserWarning, match=r"META_CPU='x86-64-v3' has avx, avx2, bmi, .* lacks; x86-64-v2 is used"):
        assert cpus._chosen_cpu.__wrapped__() == ""


def test_features_of_speed_are_no_instructions() -> None:
    sets = cpus.instruction_sets(cpus.CpuTarget(cpus.host().triple, "haswell"))
    assert {"avx2", "fma", "sse4.2"} <= sets
    assert not {name for name in sets if name.startswith(("fast", "slow", "false-deps"))}
