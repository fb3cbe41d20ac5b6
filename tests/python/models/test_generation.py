"""Generation: programs, the growing cache, sampling, stop tokens, streams and refusals."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError
from meta.models.language_model import sampled

from .tiny import programs, tiny_llama, uncached


@pytest.fixture(scope="module")
def lm() -> Any:
    return tiny_llama()


def test_the_cache_grows_without_compiling() -> None:
    lm = tiny_llama()
    expected = uncached(lm, [3, 1, 4], 8)
    assert lm.generate([3, 1, 4], 8) == expected
    assert programs(lm) == 2
    text = lm.generate([3, 1, 4], 560)
    assert lm.generate([3, 1, 4, *text[:500]], 60) == text[500:]
    assert lm.generate(np.array([7]), 8) == uncached(lm, [7], 8)
    assert programs(lm) == 2
    lm.embed_tokens.w.update(lm.embed_tokens.w * 1.5)  # programs read the weights when they run
    assert lm.generate([3, 1, 4], 8) == uncached(lm, [3, 1, 4], 8)
    lm.embed_scale = 3.0
    assert lm.generate([3, 1, 4], 8) == uncached(lm, [3, 1, 4], 8)


@pytest.mark.parametrize("options", [{}, {"top_k": 7}, {"top_p": 0.7}, {"top_k": 20, "top_p": 0.5}], ids=str)
def test_samples_depend_on_the_key_of_their_row_only(lm: Any, options: Any) -> None:
    prompts, key = [[5, 6, 7, 8, 9], [50], [11, 12]], np.array([9, 4])
    tokens = lm.generate(prompts, 12, 1.3, key=meta.array(key), **options)
    assert tokens == lm.generate(prompts, 12, 1.3, key=meta.array(key), compiled=False, **options)
    for r, prompt in enumerate(prompts):
        own = key + np.array([0, r])
        assert lm.generate(prompt, 12, 1.3, key=meta.array(own), **options) == tokens[r]
        assert lm.generate(prompt, 5, 1.3, key=meta.array(own), **options) == tokens[r][:5]
    keys = meta.array(np.stack([key, key, key + np.array([1, 0])]))
    same = lm.generate([[50]] * 3, 12, 1.3, key=keys, **options)
    assert same[0] == same[1] != same[2]


def test_default_keys_come_from_the_generator(lm: Any) -> None:
    meta.random.seed(3)
    first = lm.generate([[1], [1]], 10, 1.0)
    second = lm.generate([1], 10, 1.0)
    meta.random.seed(3)
    assert [lm.generate([1], 10, 1.0) for _ in range(3)] == [*first, second]


def test_samples_have_the_probabilities_of_the_scores() -> None:
    """Every token gets the share of an even grid of draws that its probability says, up to one step of the grid."""
    scores = np.array([0.5, 2.0, -np.inf, 1.0, 1.5], np.float32)
    count = 4000
    grid = meta.array(((np.arange(count) + 0.5) / count).astype(np.float32)[:, None])
    rows = meta.array(np.broadcast_to(scores, (count, 5)).copy())

    def shares(temperature: float, top_k: int | None = None, top_p: float | None = None) -> Any:
        limit = None if top_p is None else meta.array([top_p])
        tokens = sampled(rows, grid, meta.array([temperature]), top_k, limit).numpy()
        return np.bincount(tokens[:, 0], minlength=5) / count

    def normalised(weights: Any) -> Any:
        return weights / weights.sum()

    likely = normalised(np.exp(scores / 0.8))
    np.testing.assert_allclose(shares(0.8), likely, atol=2 / count)
    np.testing.assert_allclose(shares(0.8, top_k=2), normalised(likely * [0, 1, 0, 0, 1]), atol=2 / count)
    assert likely[1] < 0.6 < likely[1] + likely[4]
    np.testing.assert_allclose(shares(0.8, top_p=0.6), normalised(likely * [0, 1, 0, 0, 1]), atol=2 / count)
    np.testing.assert_allclose(shares(0.8, top_p=1e-6), [0, 1, 0, 0, 0])
    np.testing.assert_allclose(shares(0.8, top_k=9, top_p=0.999), likely, atol=2 / count)
    np.testing.assert_allclose(shares(1e-6), [0, 1, 0, 0, 0])


def test_stop_tokens_and_streams(lm: Any) -> None:
    whole = lm.generate([[3, 1, 4], [9]], 12)
    stop = whole[0][4]
    ends = [row[: row.index(stop) + 1] if stop in row else row for row in whole]
    assert lm.generate([[3, 1, 4], [9]], 12, stop=stop) == ends
    steps = list(lm.generate([[3, 1, 4], [9]], 12, stop=(stop, 60), stream=True))
    assert [t for t, _ in steps[: len(ends[0])]] == ends[0]
    assert all(t is None for t, _ in steps[len(ends[0]) :])
    stream = lm.generate([3, 1, 4], 12, stream=True)
    assert [next(stream), next(stream)] == whole[0][:2]
    x = meta.array([1.0], requires_grad=True)
    assert (x * 2).requires_grad  # between two tokens the caller's gradients are recorded


def test_a_model_that_generated_is_copied_and_saved(lm: Any, tmp_path: Any) -> None:
    expected = lm.generate([3, 1, 4], 4)
    twin = copy.deepcopy(lm)
    meta.save(tmp_path / "lm.safetensors", lm)
    with meta.no_grad():
        for x in twin.parameters():
            x.update(x * 0.0)
    assert lm.generate([3, 1, 4], 4) == expected != twin.generate([3, 1, 4], 4)
    meta.load(tmp_path / "lm.safetensors", twin)
    assert twin.generate([3, 1, 4], 4) == expected


def test_the_chat_answers_and_remembers(lm: Any, tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the example needs tokenizers")
    from examples import chat

    words = {f"w{i}": i for i in range(61)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    meta.frontend.huggingface.save(tmp_path, lm)
    lines = iter(["w3 w1 w4", "w9", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    chat.main([str(tmp_path), "--temperature", "0", "--tokens", "6", "--turn", "w5 {}"])
    first = lm.generate([5, 3, 1, 4], 6)
    second = lm.generate([5, 3, 1, 4, *first, 5, 9], 6)
    printed = capsys.readouterr().out.split("\n")
    assert printed[::2][:2] == [" ".join(f"w{i}" for i in answer) for answer in (first, second)]
    assert all(line.endswith(" tokens/s]") for line in printed[1::2])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([], 4), "the prompt is empty; expected a token at least; begin with the model's bos token"),
        (([[1], []], 4), "prompt 1 is empty"),
        (([1, 61], 4), "prompt 0 has the token 61; expected 0 to 60"),
        (([1, -1], 4), "prompt 0 has the token -1"),
        (([1], 0), "max_tokens is 0; expected an int of at least 1"),
        (([1], 4, -0.5), "temperature is -0.5; expected 0 (the most likely token) or more"),
        (([1], 4, float("nan")), "temperature is nan"),
        (([1], 4, 1.0, 0), "top_k is 0; expected an int of at least 1; leave it out to draw of all tokens"),
        (
            ([1], 4, 1.0, None, 0.0),
            "top_p is 0.0; expected more than 0, at most 1; temperature=0 takes the most",
        ),
        (([1], 4, 1.0, None, 1.0, meta.zeros((2,))), 'key is Tensor[(2,), "float32"]; expected int64 of shape (2,)'),
        (([1] * 590, 11), "a prompt of 590 tokens and max_tokens=11 are 601 tokens; expected at most 600"),
    ],
    ids=lambda x: "" if isinstance(x, tuple) else x[:24],
)
def test_refusals(lm: Any, arguments: Any, text: str) -> None:
    for stream in (False, True):
        with pytest.raises(ArgumentError) as error:
            lm.generate(*arguments, stream=stream)
        assert text in str(error.value)
