"""Arguments: names of keywords.

An unknown keyword is looked for in ARGUMENTS, then in LEFT_OUT, then among similar names of the function's arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from meta.errors import ArgumentError, did_you_mean, similar, value_text
from meta.tree import is_sequence

ARGUMENTS: Final[Mapping[str, Sequence[str]]] = {
    # axes and shapes
    "axes": ("axis",), "axis": ("axes", "axis1", "dim"), "batch_size": ("batch",),
    "dim": ("axis", "axes"), "dim0": ("axis1",),
    "dim1": ("axis2", "axis1"),
    "dim2": ("axis2",), "diagonal": ("offset", "k"), "dims": ("axis", "axes", "reps"),
    "keep_dims": ("keepdims",), "keepdim": ("keepdims",),
    "newshape": ("shape",), "output_size": ("size", "shape"), "shape": ("size",), "shifts": ("shift",),
    "size": ("shape",), "sizes": ("shape",), "ord": ("p",), "p": ("ord", "rate"),
    # operands
    "a": ("x", "x1"), "arr": ("x",), "array": ("x", "xs"), "arrays": ("xs",), "ary": ("x",),
    "b": ("x2", "bias"), "exponent": ("x2",),
    "index": ("indices",), "input": ("x", "x1", "indices"), "input1": ("x1",), "input2": ("x2",),
    "k": ("offset", "key"), "key": ("k",), "labels": ("target",), "logits": ("x",),
    "mat1": ("x1",), "mat2": ("x2",), "operand": ("x",),
    "other": ("x2", "y"), "q": ("query",), "query": ("q",), "self": ("x", "x1"), "seq": ("xs",), "source": ("src",),
    "target": ("labels",), "targets": ("target",),
    "tensor": ("x",), "tensors": ("xs",), "tup": ("xs",), "v": ("value",), "value": ("v", "pad_value", "fill_value"),
    "weight": ("w", "scale"), "weights": ("weight", "w"), "y": ("x2",),
    # numbers
    "a_max": ("max",), "a_min": ("min",), "ddof": ("correction",), "end": ("stop",),
    "epsilon": ("eps",), "loc": ("mean",),
    "maxval": ("high",), "minval": ("low",), "negative_slope": ("alpha",),
    "steps": ("num",), "num": ("steps",), "stddev": ("std",),
    "unbiased": ("correction",),
    # layers and functions of networks
    "attn_mask": ("mask",), "depth": ("num_classes",), "downscale_factor": ("factor",), "dropout_p": ("dropout",),
    "enable_gqa": ("grouped",),
    "dropout_rate": ("dropout", "p"), "features": ("out_features",), "filters": ("out_channels",),
    "input_dim": ("num_embeddings", "in_features"), "is_causal": ("causal",), "kernel_size": ("kernel",),
    "num_classes": ("depth",), "num_groups": ("groups",), "output_dim": ("embedding_dim", "out_features"),
    "pad": ("pad_width",), "pads": ("padding",), "pool_size": ("kernel_size", "kernel"), "rate": ("p",),
    "strides": ("stride",), "units": ("out_features",), "upscale_factor": ("factor",), "use_bias": ("bias",),
    # files and programs
    "clip_grad_norm": ("clip_norm",), "clipnorm": ("clip_norm",), "clipvalue": ("clip_value",),
    "criterion": ("loss",), "ema": ("average",), "grad_clip": ("clip_norm",),
    "gradient_accumulation_steps": ("accumulate",), "loss_fn": ("loss",), "lr_scheduler": ("schedule",),
    "max_grad_norm": ("clip_norm",), "max_norm": ("clip_norm",), "num_workers": ("workers",),
    "scheduler": ("schedule",),
    "backoff_factor": ("backoff",), "growth_factor": ("growth",), "growth_interval": ("interval",),
    "init_scale": ("scale",),
    "f": ("path",), "file": ("path",), "filename": ("path",), "map_location": ("device",), "obj": ("value",),
}  # fmt: skip
"""Arguments of other libraries => the names of the same arguments here; a function has one of them."""

_PIECES = "write the positions between the pieces: list(range({value}, x.shape[axis], {value}))"
_SWAP = "write x.swap_axis(dim0, dim1)"
_CLIP = "write meta.optim.clip_grad_norm(model, {value}) before the step"

LEFT_OUT: Final[Mapping[str, str]] = {
    "device": "move the result: .to({value})", "dtype": "cast the result: .to(dtype={value})",
    "generator": "pass a key: meta.random.next_key()", "inplace": "leave out inplace=, and use the result",
    "out": "leave out out=, and use the result",
    "requires_grad": "call the result y and set y.requires_grad = True, or write meta.array(y, requires_grad=True)",
    "alpha": "multiply the operand: {value} * x2", "b1": "write betas=({value}, 0.999)",
    "b2": "write betas=(0.9, {value})", "beta1": "write betas=({value}, 0.999)",
    "beta2": "write betas=(0.9, {value})", "beta_1": "write betas=({value}, 0.999)",
    "beta_2": "write betas=(0.9, {value})", "clip_norm": _CLIP, "clipnorm": _CLIP, "max_grad_norm": _CLIP,
    "decay": "pass a schedule, such as meta.optim.ExponentialLR",
    "mode": "leave out mode=: programs are always optimised",
    "jit_compile": "leave out jit_compile=", "fullgraph": "leave out fullgraph=: a trace has no breaks",
    "backend": "leave out backend=", "device_type": "leave out device_type=: autocast holds for all devices",
    "training": "leave out training=: a model's mode is set by train_mode() and infer_mode()",
    "size_average": 'write reduction="mean" or reduction="sum"', "reduce": 'write reduction="none"',
    "activation": "call it on the result: meta.relu(y)", "input_shape": "leave out input_shape=",
    "split_size": _PIECES, "split_size_or_sections": _PIECES, "dim0": _SWAP, "dim1": _SWAP,
    "weights_only": "leave out weights_only=: files hold arrays only", "set_to_none": "leave out set_to_none=",
} | {
    name: f"leave out {name}=" for name in (
        "amsgrad", "capturable", "casting", "copy", "differentiable", "foreign", "fused", "layout", "like", "maximize",
        "memory_format", "name", "non_blocking", "order", "persistent_workers", "pin_memory", "sparse", "stable",
        "subok", "track_running_stats", "verbose",
    )
}  # fmt: skip
"""Arguments of other libraries that no function here has, or only some => what to write in their place."""


DTYPES: Final[Mapping[str, str]] = {
    "float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64", "bool_": "bool",
    "bf16": "bfloat16", "fp16": "float16", "f16": "float16", "fp32": "float32", "f32": "float32", "fp64": "float64",
    "f64": "float64", "i32": "int32", "i64": "int64", "u8": "uint8",
} | {
    name: name for name in (
        "float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64",
        "complex128",
    )
}  # fmt: skip
"""Dtypes of other libraries => their names here."""


def argument_hint(name: str, known: Sequence[str], value: object = ...) -> str:
    """What to write for the unknown argument `name`, "" without an idea.

    known: the arguments that there are.  value: what was passed."""
    if name == "unbiased" and isinstance(value, bool):
        value = int(value)
    shown = "..." if value is ... or _has_arrays(value) else value_text(value)
    for ours in ARGUMENTS.get(name, ()):
        if ours in known:
            return f"write {ours}={shown}"
    longer = [each for each in known if each.startswith(f"{name}_")]  # `out` of a layer is no place for the result
    if name in LEFT_OUT and not longer:
        return LEFT_OUT[name].format(value=shown)
    near = longer or similar(name, known)
    return f"write {near[0]}={shown}" if len(near) == 1 else did_you_mean(name, known)


def device_hint(name: str) -> str:
    """What to write for a device of another library, or for a dtype that was passed as a device."""
    dtype = name.removeprefix("torch.")
    if dtype in DTYPES:
        return f'a dtype is passed by name: dtype="{DTYPES[dtype]}"'
    kind, _, index = name.lower().rpartition(":") if ":" in name else (name.lower(), "", "")
    if name.isdecimal():
        return f'write "cuda:{name}"'
    return f'write "cuda{":" * bool(index)}{index}"' if kind in ("gpu", "mps", "xpu", "tpu", "hip") else ""


def call_text(function: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A call to write instead. names: the function's arguments; those that are arrays appear by their names."""
    return _call(function, [*map(_text, names, args)], kwargs)


def keyed_call_text(
    op: str, parameters: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any], position: int
) -> str:
    """A call to write instead of one without a random key, the argument at `position` of the schema's `parameters`.
    What draws numbers, with the key first, has a function in meta.random, which takes a shape first."""
    given, names = list(args), [each.name for each in parameters]
    while given and repr(given[-1]) == repr(parameters[len(given) - 1].default):
        given.pop()
    # Functions make one int a tuple.
    sizes = [each.type.name.startswith("IntTuple") for each in parameters]
    given = [x[0] if size and is_sequence(x) and len(x) == 1 else x for x, size in zip(given, sizes, strict=False)]
    given = [x for x in given if x is not parameters[position].default]  # the key itself was left out
    if position:
        texts = [*map(_text, names[:position], given), "meta.random.next_key()"]
        return _call(operator_path(op), [*texts, *map(_text, names[position + 1 :], given[position:])], kwargs)
    return _call(f"meta.random.{op}", [*map(_text, names[1:], shape_first(given))], kwargs)


def shape_first(args: Sequence[Any]) -> list[Any]:
    """Arguments in the order of NumPy and torch, with the shape last, in the order of this package."""
    return [args[-1], *args[:-1]] if args and is_sequence(args[-1]) else [*args]


def operator_path(op: str) -> str:
    """The function of an operator: `meta.ops.mypkg.twice` of `mypkg::twice`."""
    return f"meta.ops.{op.replace('::', '.')}" if "::" in op else f"meta.{op}"


def _call(function: str, args: Sequence[str], kwargs: Mapping[str, Any]) -> str:
    keywords = [f"{name}={_text(name, value)}" for name, value in kwargs.items()]
    return f"write {function}({', '.join([*args, *keywords])})"


def _text(name: str, value: object) -> str:
    return name if _has_arrays(value) else value_text(value)


def _has_arrays(value: object) -> bool:
    return any(map(_has_arrays, value)) if is_sequence(value) else hasattr(value, "shape")


def refuse_unknown(subject: str, given: Mapping[str, Any], known: Sequence[str], expected: str = "") -> None:
    """Raise ArgumentError for keywords of a call that the function `subject` does not have.

    known: those that it has.  expected: its arguments as text, by default their names."""
    unknown = {name: value for name, value in given.items() if name not in known}
    if unknown:
        hints = dict.fromkeys(argument_hint(name, known, value) for name, value in unknown.items())
        problem = f"unknown argument{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}"
        raise ArgumentError(subject, problem, expected or ", ".join(known) or "none", ", ".join(filter(None, hints)))
