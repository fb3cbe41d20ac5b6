"""Decoders: scores of whole texts, and generation with a cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import meta
from meta import random, vm
from meta._generated.methods import Tensor
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, value_text
from meta.models.blocks import AttentionContext, Projection
from meta.models.lora import AdaptableModel
from meta.models.quantized import QuantizedProjection
from meta.modes import no_grad
from meta.schema.annotations import explained

Ids = Sequence[int] | Sequence[Sequence[int]] | NDArray | npt.NDArray[Any]


def sampled(scores: Tensor, draws: Tensor, temperature: Tensor, top_k: int | None, top_p: Tensor | None) -> Tensor:
    """A token for each row of scores (rows, vocabulary), of probability softmax(scores / temperature), int64 (rows, 1).

    draws: (rows, 1), uniform in [0, 1): the token whose interval of cumulative probability has it.
    top_k: only the most likely ones.  top_p: of these only the most likely ones that reach this probability, (1,) (A.
    Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020). A row depends on itself only."""
    scores = scores.cast("float32")
    order = None
    if top_k is not None or top_p is not None:
        scores, order = meta.topk(scores, min(top_k or scores.shape[-1], scores.shape[-1]))
    likely = meta.softmax((scores - meta.max(scores, -1, True)) / temperature)
    if top_p is not None:
        likely = meta.where(meta.cumsum(likely, -1, exclusive=True) < top_p, likely, 0.0)
    ends = meta.cumsum(likely, -1)
    below = meta.sum((ends <= draws * ends[:, -1:]).cast("int64"), -1, True)
    # Rounding must not draw a token of probability 0 behind the end.
    place = meta.minimum(below, meta.sum((ends < ends[:, -1:]).cast("int64"), -1, True))
    return place if order is None else meta.gather(order, 1, place)


class LanguageModel(AdaptableModel):
    """A decoder. Subclasses define `build` and `hidden`, and set the attributes.

    vocab_size: tokens.  max_length: the most tokens of a text.
    cache_shape: layers, heads of keys and values, and features of a head."""

    vocab_size: int
    max_length: int
    cache_shape: tuple[int, int, int]
    lm_head: Projection | QuantizedProjection
    lora_targets: ClassVar[Sequence[str]] = ("q_proj", "v_proj")
    lora_task: ClassVar[str | None] = "CAUSAL_LM"

    def hidden(self, ids: Tensor, context: AttentionContext) -> Tensor:
        """The features behind the last norm, (rows, length, width)."""
        raise NotImplementedError

    def forward(self, ids: Tensor) -> Tensor:
        """(rows, length) ids -> (rows, length, vocab_size) scores of the next token."""
        return self.lm_head(self.hidden(ids, AttentionContext(ids)))

    @explained
    def generate(
        self, ids: Ids, max_tokens: int, temperature: float = 0.0, top_k: int | None = None, top_p: float = 1.0,
        key: NDArray | None = None, stop: int | Collection[int] = (), *, stream: bool = False, compiled: bool = True,
    ) -> Any:  # fmt: skip
        """The tokens that continue a text: a list of ints, or of one list for each text.

        ids: a text as a list of ints, or texts of any lengths.  max_tokens: at most so many new tokens each.
        temperature: 0 for the most likely token; else tokens are drawn with probability softmax(scores / temperature).
        top_k, top_p: draw of the k most likely tokens, and of the most likely ones that reach this probability.
        key: of `meta.random`, int64: (2,), where row r draws by (seed, offset + r), or one for each row, (rows, 2).
            None takes the next ones of the default generator. A row's draws depend on its key and its number of
            tokens so far, not on other rows.
        stop: tokens that end a text; they are its last token.
        stream: return an iterator over the steps: an int, or for each text an int, or None after its end.
        compiled: one program for all prompts of as many rows, and one for a token; else operators one by one.

        The cache grows by blocks of 256 tokens, without another compilation. Texts of unequal lengths are padded on
        the left; padding is not seen. Raises ArgumentError for arguments that do not fit, before anything runs."""
        prompts, single = self._prompts(ids)
        longest = max(map(len, prompts))
        _check(max_tokens, temperature, top_k, top_p)
        if longest + max_tokens > self.max_length:
            problem = f"a prompt of {longest} tokens and max_tokens={max_tokens} are {longest + max_tokens} tokens"
            raise ArgumentError("generate", problem, f"at most {self.max_length}, the model's longest text",
                                "shorten the prompt, or lower max_tokens")  # fmt: skip
        device = self.lm_head.w.device
        draws = None if temperature == 0 else _draws(key, len(prompts), max_tokens)
        options = [] if draws is None else [meta.array([temperature], "float32", device)]
        if draws is not None and top_p < 1:
            options.append(meta.array([top_p], "float32", device))
        step = _Step(self, draws is not None, top_k, len(options) > 1)
        tokens = self._tokens(prompts, max_tokens, step.compiled() if compiled else step, draws, options,
                              {stop} if isinstance(stop, int) else set(stop))  # fmt: skip
        if stream:
            return (row[0] for row in tokens) if single else tokens
        rows = [[t for t in row if t is not None] for row in zip(*tokens, strict=True)]
        return rows[0] if single else rows

    def _prompts(self, ids: Any) -> tuple[list[list[int]], bool]:
        """The texts as lists, and whether it is one that was not in a list."""
        ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
        single = not ids or not isinstance(ids[0], (list, tuple, np.ndarray))
        prompts = [[int(token) for token in row] for row in ([ids] if single else ids)]
        for i, row in enumerate(prompts):
            if not row:
                problem = f"{'the prompt' if single else f'prompt {i}'} is empty"
                raise ArgumentError("generate", problem, "a token at least", "begin with the model's bos token")
            wrong = next((token for token in row if not 0 <= token < self.vocab_size), None)
            if wrong is not None:
                raise ArgumentError("generate", f"prompt {i} has the token {wrong}", f"0 to {self.vocab_size - 1}")
        return prompts, single

    def _tokens(
        self, prompts: list[list[int]], count: int, step: Callable[..., tuple[NDArray, NDArray]],
        draws: npt.NDArray[Any] | None, options: list[NDArray], stop: set[int],
    ) -> Iterator[list[int | None]]:  # fmt: skip
        """The tokens of each step, None for rows that have ended."""
        block = 256
        device, (layers, heads, size) = self.lm_head.w.device, self.cache_shape
        length = max(map(len, prompts))
        pads = meta.array([length - len(row) for row in prompts], "int64", device)
        ids = meta.array([[0] * (length - len(row)) + row for row in prompts], "int64", device)
        start, capacity, living = meta.zeros((1,), "int64", device), 0, [True] * len(prompts)
        cache = [meta.zeros((len(prompts), heads, 0, size), self.dtype, device)] * (2 * layers)
        for i in range(count):
            with no_grad():  # not around the yield: the caller's code runs there
                if length + i > capacity:
                    more = -(-(length + i - capacity) // block) * block
                    blank = meta.zeros((len(prompts), heads, more, size), self.dtype, device)
                    cache, capacity = [meta.concatenate([x, blank], 2) for x in cache], capacity + more
                drawn = [] if draws is None else [meta.array(draws[:, i : i + 1], device=device)]
                ids, start = step(ids, start, pads, *drawn, *options, *cache)
            tokens: list[int] = ids.numpy()[:, 0].tolist()
            yield [token if alive else None for token, alive in zip(tokens, living, strict=True)]
            living = [alive and token not in stop for token, alive in zip(tokens, living, strict=True)]
            if not any(living):
                return


class _Programs(dict[Any, Any]):
    """The programs of a model. Copies of the model begin without any."""

    def __reduce__(self) -> tuple[type[_Programs], tuple[()]]:
        return _Programs, ()


class _Step:
    """Append tokens to the cache: (ids, start, pads, draws if sampled, temperature, top_p if given, cache) -> the next
    token of each row, (rows, 1), and the next start."""

    def __init__(self, model: LanguageModel, sampled: bool, top_k: int | None, with_top_p: bool) -> None:
        self.model, self.sampled, self.top_k, self.with_top_p = model, sampled, top_k, with_top_p

    def __call__(self, ids: Tensor, start: Tensor, pads: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        count = self.sampled + self.sampled + self.with_top_p
        context = AttentionContext(ids, start, pads, rest[count:])
        scores = self.model.lm_head(self.model.hidden(ids, context)[:, -1])
        following = start + ids.shape[1]
        if not self.sampled:
            return meta.argmax(scores, -1, True), following
        draws, temperature, *top_p = rest[:count]
        return sampled(scores, draws, temperature, self.top_k, top_p[0] if top_p else None), following

    def compiled(self) -> Callable[..., Any]:
        """The programs of the step, kept with the model: one for prompts and one for a token."""
        programs: _Programs = vars(self.model).setdefault("_programs", _Programs())
        device = self.model.lm_head.w.device
        key = self.sampled, self.top_k, self.with_top_p, device
        if key not in programs:
            first = 2 * self.sampled + self.with_top_p
            opened = {f"rest.{first + i}": {2: "capacity"} for i in range(2 * self.model.cache_shape[0])}

            def append(ids: Tensor, start: Tensor, pads: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
                return self(ids, start, pads, *rest)

            prefill = vm.compile(append, device, dynamic={"ids": {1: "length"}, **opened})
            programs[key] = prefill, vm.compile(append, device, dynamic=opened)
        prefill, decode = programs[key]

        def run(ids: NDArray, *rest: NDArray) -> tuple[NDArray, NDArray]:
            return (decode if ids.shape[1] == 1 else prefill)(ids, *rest)

        return run


def _check(max_tokens: object, temperature: float, top_k: int | None, top_p: float) -> None:
    is_count = isinstance(max_tokens, int) and max_tokens >= 1
    least = "an int of at least 1"
    for fits, problem, expected, remedy in (
        (is_count, f"max_tokens is {value_text(max_tokens)}", least, ""),
        (0 <= temperature < math.inf, f"temperature is {temperature}", "0 (the most likely token) or more", ""),
        (top_k is None or top_k >= 1, f"top_k is {top_k}", least, "leave it out to draw of all tokens"),
        (0 < top_p <= 1, f"top_p is {top_p}", "more than 0, at most 1", "temperature=0 takes the most likely token"),
    ):
        if not fits:
            raise ArgumentError("generate", problem, expected, remedy)


def _draws(key: NDArray | None, rows: int, count: int) -> npt.NDArray[Any]:
    """Uniform numbers, (rows, count), each row by its own key."""
    given: NDArray = random.default_generator.next_key(count=rows) if key is None else key
    if given.dtype != "int64" or given.shape not in ((2,), (rows, 2)):
        expected = f"int64 of shape (2,) or ({rows}, 2)"
        raise ArgumentError("generate", f"key is {given.type!r}", expected, "pass meta.random.next_key()")
    keys: Any = given.numpy()
    keys = keys if keys.ndim == 2 else keys + np.array([[0, r] for r in range(rows)])
    return np.stack([meta.uniform(meta.array(k), (count,)).numpy() for k in keys])
