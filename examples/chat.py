"""Chat with a language model: `python -m examples.chat FOLDER`, where FOLDER has config.json, safetensors files and
tokenizer.json, as Hugging Face has them. Needs the package tokenizers.

Each line that you type goes on with the conversation; an empty line ends it. Models that were taught a format of turns
want it: `--turn "<|im_start|>user\\n{}<|im_end|>\\n<|im_start|>assistant\\n"` is Qwen's form."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import meta


def stop_tokens(lm: Any) -> tuple[int, ...]:
    """The tokens that end a text, by config.json."""
    ends = lm.config.get("eos_token_id")
    return () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)


def pieces(tokenizer: Any, tokens: Iterator[int], written: list[int]) -> Iterator[str]:
    """What each token adds to the text; `written` receives the tokens. Letters of several tokens come with the last."""
    text = ""
    for token in tokens:
        written.append(token)
        longer = tokenizer.decode(written)
        if not longer.endswith("\N{REPLACEMENT CHARACTER}"):
            yield longer[len(text) :]
            text = longer


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Chat with a language model.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", help="default: as config.json says")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=200, help="at most, for an answer (default: 200)")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--turn", default="{}", help="what a line of yours becomes; \\n is a new line")
    options = parser.parse_args(argv)
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(options.folder / "tokenizer.json"))
    lm = meta.frontend.huggingface.load(options.folder, dtype=options.dtype, device=options.device)
    turn, conversation = options.turn.replace("\\n", "\n"), list[int]()
    while line := input("> "):
        conversation += tokenizer.encode(turn.replace("{}", line)).ids
        answer: list[int] = []
        start = time.perf_counter()
        tokens = lm.generate(conversation, options.tokens, options.temperature, top_p=options.top_p,
                             stop=stop_tokens(lm), stream=True)  # fmt: skip
        for piece in pieces(tokenizer, tokens, answer):
            print(piece, end="", flush=True)
        print(f"\n[{len(answer) / (time.perf_counter() - start):.1f} tokens/s]")
        conversation += answer


if __name__ == "__main__":
    main()
