"""Functions that run before and after the forward function of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, cast

from meta import tracing
from meta.records import mutable, record

ForwardHook = Callable[..., Any]
"""hook(model, args, result), or hook(model, args, kwargs, result); what it returns, unless None, is the result."""
ForwardPreHook = Callable[..., Any]
"""hook(model, args), or hook(model, args, kwargs); what it returns, unless None, replaces the arguments."""


@mutable(eq=False)
class HookHandle:
    """A registered hook: `remove()` ends it. As a context manager it ends with the block."""

    owner: list[HookEntry]
    entry: HookEntry

    def remove(self) -> None:
        """Remove the hook. Later calls do nothing."""
        if self.entry in self.owner:
            self.owner.remove(self.entry)
            tracing.invalidate()

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


@record(eq=False)
class HookEntry:
    """A hook, and whether it takes the keyword arguments of the call."""

    hook: Callable[..., Any]
    with_kwargs: bool


@mutable(eq=False)
class Hooks:
    """The hooks of one model, in the order in which they run."""

    before: list[HookEntry] = field(default_factory=list[HookEntry])
    after: list[HookEntry] = field(default_factory=list[HookEntry])

    def call(self, model: object, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`forward(*args, **kwargs)` with the hooks around it."""
        for each in tuple(self.before):
            if each.with_kwargs:
                changed = each.hook(model, args, kwargs)
                args, kwargs = (args, kwargs) if changed is None else changed
                continue
            changed = each.hook(model, args)
            if changed is not None:
                args = cast("tuple[Any, ...]", changed) if isinstance(changed, tuple) else (changed,)
        result = forward(*args, **kwargs)
        for each in tuple(self.after):
            changed = each.hook(model, args, kwargs, result) if each.with_kwargs else each.hook(model, args, result)
            result = result if changed is None else changed
        return result


def added(entries: list[HookEntry], hook: Callable[..., Any], prepend: bool, with_kwargs: bool) -> HookHandle:
    """Register a hook; programs traced without it are stale."""
    entry = HookEntry(hook, with_kwargs)
    entries.insert(0 if prepend else len(entries), entry)
    tracing.invalidate()
    return HookHandle(entries, entry)
