"""The first samples of operators as one program, for systems that meta's programs are exported to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import meta
from meta.testing.call import flat_results
from meta.testing.generic import check_values, make_call
from meta.testing.samples import Sample


def sample_program(samples: Sequence[Sample]) -> tuple[Any, list[Any], Callable[[Iterable[Any], str], None]]:
    """A traced function that calls the operator of each sample; its argument, the arrays of each; and a check of the
    flat results of an export, named in messages, against the references of the samples."""
    hosts = [make_call(s, "float32" if s.is_floating else "") for s in samples]
    calls = [host.to_meta() for host in hosts]

    @meta.trace
    def program(arrays: list[Any]) -> list[Any]:
        return [call.with_arrays(each).run() for call, each in zip(calls, arrays, strict=True)]

    def check(results: Iterable[Any], system: str) -> None:
        values = iter(results)
        for sample, host, call in zip(samples, hosts, calls, strict=True):
            with meta.with_dialect("reference"):  # needs no kernel to tell how many results there are
                eager = call.run()
            flat = [meta.array(np.asarray(next(values))) for _ in flat_results(eager)]
            check_values(sample, host, tuple(flat) if isinstance(eager, tuple) else flat[0], f"{sample!r} in {system}")

    return program, [call.arrays() for call in calls], check
