"""Covariance by class of token."""

import math

import pytest
import torch

from isentrope.policy.model import LanguageModel
from isentrope.policy.sampler import Rollout
from isentrope.policy.token_classes import CLASSES, class_of, token_classes
from isentrope.training.mechanism import class_metrics


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("7", "number"),
        (" 12", "number"),
        ("3.5", "number"),
        ("=", "symbol"),
        (" (", "symbol"),
        ("\N{MINUS SIGN}", "symbol"),
        ("\N{REPLACEMENT CHARACTER}", "symbol"),
        (" therefore", "word"),
        ("x2", "word"),
        ("\N{GREEK SMALL LETTER PI}", "word"),
        ("\n\n", "space"),
        ("", "space"),
    ],
)
def test_the_class_of_a_text(text: str, name: str) -> None:
    assert class_of(text) == name


def rollout_of(model: LanguageModel, texts: list[str], length: int) -> Rollout:
    """One row: tokens of these texts, an end of sequence, and padding."""
    ids = [model.tokenizer.convert_tokens_to_ids(text) for text in texts]
    tokens = torch.tensor([[*ids, int(model.eos_ids[0]), 5, 5]])
    zeros = torch.zeros(1, tokens.shape[1])
    mask = (torch.arange(tokens.shape[1]) < length)[None]
    one = torch.ones(1, 1, dtype=torch.long)
    return Rollout(
        **{
            **dict.fromkeys(Rollout.__slots__, zeros),
            "prompts": one,
            "prompt_mask": one.bool(),
            "tokens": tokens,
            "mask": mask,
        }
    )


def test_means_and_shares_by_class(model: LanguageModel) -> None:
    rollout = rollout_of(model, ["8", "*", "5", "+", "3", "+"], 7)
    covariance = torch.tensor([[0.1, 1.0, 0.2, 2.0, 0.6, 6.0, -0.4, 99.0, 99.0]])
    metrics = class_metrics(model, rollout, covariance)
    assert metrics["covariance/class_number"] == pytest.approx(0.3)
    assert metrics["covariance/class_symbol"] == pytest.approx(3.0)
    assert metrics["covariance/class_special"] == pytest.approx(-0.4)
    assert math.isnan(metrics["covariance/class_word"])
    shares = [metrics[f"tokens/class_{name}"] for name in CLASSES]
    assert shares == pytest.approx([3 / 7, 3 / 7, 0, 0, 1 / 7])


def test_each_token_is_decoded_once(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.tensor([[20, 21, 20], [22, 21, 20]])
    first = token_classes(model, tokens)
    monkeypatch.setattr(model.tokenizer, "decode", None)
    assert torch.equal(token_classes(model, tokens), first)
    assert first.shape == tokens.shape
