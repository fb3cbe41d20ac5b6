"""Results of tuning in the cache of this machine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, Final

from meta.backend.tvm import target as targets
from meta.backend.tvm.choices import parse_value
from meta.cache import default_cache
from meta.deploy.tuning.kernels import KernelVariant, State
from meta.records import record


@record
class TuneResult:
    """The tuning of a kernel. default, tuned: seconds of a call with the default choices and with these.
    finished: whether the search was at its end."""

    state: State
    default: float
    tuned: float
    finished: bool


_SUFFIX: Final = ".tuned"


def result_key(variant: KernelVariant, place: str) -> str:
    """The key of a kernel, by its variant with default choices, for the CPU compiled for and the place of the times: an
    emulator's say nothing about a board."""
    facts = (place, variant.key, sorted({scope for scope, _ in variant.knobs}), targets.identity("cpu"))
    return f"tuned_{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}"


def read_result(key: str) -> TuneResult | None:
    """The result of an earlier tuning on this machine, None without a whole one."""
    disk = default_cache()
    try:
        content: Any = json.loads((disk and disk.read(key, _SUFFIX)) or "")
        state = {(str(scope), str(name)): parse_value(value) for scope, name, value in content["choices"]}
        result = TuneResult({}, float(content["default"]), float(content["tuned"]), bool(content["finished"]))
    except (ValueError, TypeError, LookupError):
        return None
    values = {place: value for place, value in state.items() if value is not None}
    return replace(result, state=values) if len(values) == len(state) else None


def store_result(key: str, result: TuneResult) -> None:
    """Store a result in the cache of this machine, if there is one."""
    disk = default_cache()
    if disk is not None:
        choices = [[scope, name, value] for (scope, name), value in result.state.items()]
        content = {"default": result.default, "tuned": result.tuned, "finished": result.finished, "choices": choices}
        disk.put(key, json.dumps(content).encode(), _SUFFIX)
