"""The error classes of meta and the rendering of their messages.

An error has four parts, rendered as `[subject] problem; expected EXPECTED; remedy (at file:line of the user's code)`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

E = TypeVar("E", bound="MetaError")


# Frames to skip: this package, code without a file, and the modules of `with`, decorators and copies.
_NOT_USER = (str(Path(__file__).parent) + os.sep, "<", contextlib.__file__, copy.__file__, functools.__file__)

# Libraries that a user's function calls: an error inside of them is reported at the line of the call.
_LIBRARIES = frozenset({"numpy", "torch", "triton", "tvm", "tvm_ffi"})


def value_text(value: object, limit: int = 60) -> str:
    """The representation of a value for a message, on one line of at most `limit` characters."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"of {value.bit_length()} bits"
    try:
        text = repr(value)
    except ValueError:  # Python prints no int of more than 4300 digits
        return "with an int of thousands of digits"
    text = text.replace("\n", " ")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shortened(text: str) -> str:
    """A part of a message, without its middle if it is very long."""
    longest_part = 2000  # Characters of one part of a message: values in it may be lists of a million numbers.
    if len(text) <= longest_part:
        return text
    half = longest_part // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters) ... {text[-half:]}"


class MetaError(Exception):
    """Base of every error of this package.

    subject: the operator or the part of the package that raises it; "" until `attribute` names it.
    problem: the mistake, with the actual values.  expected: the allowed values, a noun phrase after "expected".
    remedy: the fix, as an imperative.  location: `file:line` of the user's code at construction; "" if unknown.
    within: an operator from outside of this package, or a function of a module that defines such operators, with the
        `file:line` at which the error left it; the location is then the line that called it. ("", "") elsewhere.
    details: further lines below the message: an excerpt of the source, or other errors.
    """

    def __init__(
        self,
        subject: str,
        problem: str,
        expected: str = "",
        remedy: str = "",
        *,
        location: str | None = None,
        details: str = "",
    ) -> None:
        super().__init__(subject, problem, expected, remedy)
        self.subject = subject
        self.problem = shortened(problem)
        self.expected = shortened(expected)
        self.remedy = shortened(remedy)
        caller, self.within = _called_from() if location is None else (location, ("", ""))
        self.location = caller
        self.details = details

    def attribute(self, subject: str) -> None:
        """Set the subject of an error that a shared rule raised without one."""
        self.subject = self.subject or subject

    def left(self, function: str) -> None:
        """Report an error that leaves a function of an operator at the line that called the operator, and name the
        function and its own line beside it."""
        caller, within = _called_from()
        line = self.within[1] or self.location
        if caller and line not in (caller, within[1]):
            self.location, self.within = caller, (function, line)

    @property
    def summary(self) -> str:
        """The message without location and details, for an error that is raised again elsewhere."""
        expected = f"expected {self.expected}" if self.expected else ""
        text = "; ".join(part for part in (self.problem, expected, self.remedy) if part)
        return f"[{self.subject}] {text}" if self.subject else text

    def __str__(self) -> str:
        within = "in {} at {}".format(*self.within) if self.within[1] else ""
        places = ", ".join(filter(None, (self.location and f"at {self.location}", within)))
        location = f" ({places})" if places else ""
        return self.summary + location + (f"\n{self.details}" if self.details else "")


class ArgumentError(MetaError, TypeError):
    """An argument of the wrong Python type, an unknown argument, or a missing one."""


class TypeInferenceError(MetaError, ValueError):
    """Arguments whose shapes, dtypes or values do not fit together."""


class SymbolicSizeError(TypeInferenceError):
    """A symbolic size where a number is needed."""


class AxisError(TypeInferenceError, IndexError):
    """An axis outside of the rank."""


class PositionError(MetaError, IndexError):
    """An invalid or out-of-range index."""


class DeviceError(MetaError, ValueError):
    """A missing device, or operands on different devices."""


class ExportError(DeviceError, BufferError):
    """Memory that cannot be handed to another library in the way that it asks for."""


class DispatchError(MetaError, RuntimeError):
    """No dialect accepts a call."""


class KernelError(MetaError, RuntimeError):
    """An error while a kernel is built or run."""


class LinAlgError(MetaError, ValueError):
    """A matrix without the wanted inverse or factorization, such as a singular one."""


class CommunicationError(MetaError, RuntimeError):
    """A collective that fails: no group, ranks that run other programs, a rank that stopped or does not answer."""


class GradientError(MetaError, RuntimeError):
    """A gradient that does not exist or cannot be computed."""


class AnomalyError(MetaError, ArithmeticError):
    """NaN inside of `meta.detect_anomaly()`."""


class RegistryError(MetaError, LookupError):
    """An unknown or already registered name of an operator, schema or dialect."""


class IRError(MetaError, ValueError):
    """IR text with a syntax error, or ill-formed IR."""


class TraceError(MetaError, RuntimeError):
    """A Python function that cannot be recorded as IR."""


class FileError(MetaError, RuntimeError):
    """A file that cannot be read or written, or that does not hold what it should."""


class NotSupportedError(MetaError, NotImplementedError):
    """A valid request that this version does not support."""


class MissingAttribute(AttributeError):
    """An attribute that is missing. What to write is looked up when the message is read: most such errors are dropped,
    because libraries ask for attributes that a value may have."""

    def __init__(self, problem: str, hint: Callable[[], str], name: str, instance: object) -> None:
        super().__init__(problem, name=name, obj=instance)
        self._hint = hint

    def __str__(self) -> str:
        hint = self._hint()
        return f"{self.args[0]}; {hint}" if hint else self.args[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return AttributeError, (str(self),)


_operator_modules: tuple[str, ...] = ()


def add_operator_module(name: str) -> None:
    """Count module `name`, which defines operators, and the modules below it as a library: errors are located at the
    line that called it. Scripts, and the modules of this package, do not count."""
    global _operator_modules
    prefix = f"{name}."
    if name not in ("", "__main__") and not prefix.startswith(("meta.", *_operator_modules)):
        _operator_modules = (*_operator_modules, prefix)


def _user_frames() -> tuple[FrameType | None, FrameType | None]:
    """The innermost frame outside of this package, of the libraries that call it and of modules that define operators;
    then the innermost frame of such a module, if one was passed.

    A module of operators that is called by nothing but a runner (pytest, a notebook) is the user's own."""
    frame = sys._getframe(1)
    inner: FrameType | None = None
    while frame is not None:
        root = str(frame.f_globals.get("__name__")).partition(".")[0]
        if not frame.f_code.co_filename.startswith(_NOT_USER) and root not in _LIBRARIES:
            if not _is_operator_code(frame):
                if inner is None or not frame.f_code.co_filename.startswith(_installed()):
                    return frame, inner
            elif inner is None:
                inner = frame
        frame = frame.f_back
    return inner, None


def _is_operator_code(frame: FrameType) -> bool:
    """Whether a frame runs a function of a module of operators; while such a module is imported, it is the user."""
    module = f"{frame.f_globals.get('__name__')}."
    return module.startswith(_operator_modules) and frame.f_code.co_name != "<module>"


@functools.cache
def _installed() -> tuple[str, ...]:
    """The folders of the standard library and of installed packages."""
    import sysconfig

    return tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")})


def _called_from() -> tuple[str, tuple[str, str]]:
    """`file:line` of the user's code, "" if there is none, and the function and line of operators' code inside it."""
    frame, inner = _user_frames()
    return _line(frame), (inner.f_code.co_name if inner else "", _line(inner))


def _line(frame: FrameType | None) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""


def user_location() -> tuple[str, int] | None:
    """The file and line of the innermost frame outside this package and modules of operators, or None."""
    frame, _ = _user_frames()
    return (frame.f_code.co_filename, frame.f_lineno) if frame else None


def user_frame() -> str:
    """`file:line` of the innermost frame outside this package and modules of operators, or ""."""
    return _line(_user_frames()[0])


def line_beyond(library: str) -> str:
    """`file:line` of the innermost frame outside this package and a library whose function calls it, or ""."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in (library, "meta"):
        frame = frame.f_back
    return _line(frame)


def install_hint(extra: str) -> str:
    """The command that installs the packages of an extra."""
    return f"pip install 'meta-tvm[{extra}]'"


def raised(kind: type[E], subject: str, what: str, error: Exception) -> E:
    """`error`, which a user's function raised, as an error of meta at the user's line; to be raised from `error`.

    what: the function ("its TVM compute")."""
    text = f": {error}" if str(error) else ""
    return kind(subject, f"{what} raised {type(error).__name__}{text}", location=line_of_error(error) or None)


def line_of_error(error: BaseException) -> str:
    """`file:line` of the innermost frame that `error` went through in the user's package, "" if there is none."""
    line, package = "", ""
    step = error.__traceback__
    while step is not None:
        filename = step.tb_frame.f_code.co_filename
        root = str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if not filename.startswith(_NOT_USER) and root not in _LIBRARIES and package in ("", root):
            line, package = f"{filename}:{step.tb_lineno}", root
        step = step.tb_next
    return line


def line_of_function(function: Callable[..., Any]) -> str:
    """`file:line` of a function's definition in the user's code, "" if it is not there."""
    target: Any = function
    for name in ("func", "__func__", "__wrapped__") * 2:
        target = getattr(target, name, target)
    target = target if hasattr(target, "__code__") else getattr(target, "__call__", target)  # noqa: B004  # an object
    code = getattr(target, "__code__", None)
    root = str(getattr(target, "__module__", "")).partition(".")[0]
    if code is None or code.co_filename.startswith(_NOT_USER) or root in _LIBRARIES:
        return ""
    return f"{code.co_filename}:{code.co_firstlineno}"


@contextlib.contextmanager
def attributed(subject: str) -> Generator[None, None, None]:
    """Name the subject of errors that shared rules raise inside the block."""
    try:
        yield
    except MetaError as error:
        error.attribute(subject)
        raise


def combined(errors: Sequence[E]) -> E:
    """The first of several errors; to its details are added the distinct messages of the others, one per line."""
    first, *others = errors
    texts = [text for text in dict.fromkeys(map(str, others)) if text != str(first)]
    first.details = "\n".join(filter(None, (first.details, *texts)))
    return first


_COMPARED, _CANDIDATES = 64, 2000  # characters of the longest name that is compared; how many names are


def did_you_mean(name: str, names: Iterable[str], limit: int = 3) -> str:
    """`did you mean 'softmax'?` for a misspelt `name`, or "" if no name in `names` is similar."""
    matches = similar(name, names, limit)
    return f"did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def similar(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """The names that a misspelt or shortened `name` may mean, the likeliest first: `mse` for `mse_loss`.

    Of many names, the last ones are compared, and long ones not at all: comparing takes time."""
    if len(name) > _COMPARED:
        return []
    import difflib  # takes as long to import as this module

    names = list(names)
    same = [each for each in names if each.lower() == name.lower()][:limit]
    near = [each for each in names if len(each) <= _COMPARED][-_CANDIDATES:]
    longer = sorted((each for each in names if f"_{name}_" in f"_{each}_"), key=len)[:1]
    return same or difflib.get_close_matches(name, near, n=limit, cutoff=0.6) or longer
