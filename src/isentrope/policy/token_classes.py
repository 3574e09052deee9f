"""Classes of tokens that a reader understands: number, symbol, word, space, special."""

from functools import lru_cache

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from isentrope.policy.model import LanguageModel

__all__ = ["CLASSES", "class_of", "token_classes"]

CLASSES = ("number", "symbol", "word", "space", "special")
"""Special are the tokens that end a response, and the tokenizer's other special ones."""


def token_classes(model: LanguageModel, tokens: Tensor) -> Tensor:
    """The index in CLASSES of each token id, in the shape of `tokens`."""
    known = known_classes(model.tokenizer)
    special = {*model.eos_ids.tolist(), *model.tokenizer.all_special_ids}
    ids, places = tokens.unique(return_inverse=True)
    for token in ids.tolist():
        if token not in known:
            name = "special" if token in special else class_of(str(model.tokenizer.decode([token])))
            known[token] = CLASSES.index(name)
    return torch.tensor([known[token] for token in ids.tolist()])[places]


def class_of(text: str) -> str:
    """The class of a token with this text: by its letters, else its digits, else what is left.

    A part of a character, which has no text of its own, is a symbol.
    """
    if not text.strip():
        return "space"
    if any(character.isalpha() for character in text):
        return "word"
    return "number" if any(character.isdigit() for character in text) else "symbol"


@lru_cache(maxsize=4)
def known_classes(tokenizer: PreTrainedTokenizerBase) -> dict[int, int]:
    """The classes that have been looked up, by token id: each id is decoded once."""
    return {}
