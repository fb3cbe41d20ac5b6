"""Language models whose weights come from checkpoints: `meta.frontend.huggingface.load` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.lazy import exports

if TYPE_CHECKING:
    from meta.models.bert import Bert as Bert
    from meta.models.gpt2 import GPT2 as GPT2
    from meta.models.language_model import LanguageModel as LanguageModel
    from meta.models.llama import Llama as Llama
    from meta.models.t5 import T5 as T5
else:
    __getattr__, __dir__ = exports(__name__, {
        "meta.models.bert": ("Bert",),
        "meta.models.gpt2": ("GPT2",),
        "meta.models.language_model": ("LanguageModel",),
        "meta.models.llama": ("Llama",),
        "meta.models.t5": ("T5",),
    })  # fmt: skip
