"""Nuclei worked out by hand, and what is logged of a filtered sample."""

from math import log
from pathlib import Path

import pytest
import torch

from isentrope.config import EvaluationConfig, TrainConfig, load_config
from isentrope.errors import ConfigError
from isentrope.objective.streams import stream
from isentrope.policy.filtering import Filter, filtered
from isentrope.policy.model import LanguageModel
from isentrope.policy.sampler import draw
from isentrope.tasks.countdown import Countdown
from isentrope.training.evaluate import evaluate

PROBABILITY = torch.tensor([[0.125, 0.5, 0.25, 0.0625, 0.0625]])
"""Likeliest first: tokens 1, 2, 0, then 3 and 4, which tie."""


@pytest.mark.parametrize(
    ("keep", "tokens"),
    [
        (Filter(), [0, 1, 2, 3, 4]),
        (Filter(top_p=0.5), [1]),
        (Filter(top_p=0.51), [1, 2]),
        (Filter(top_p=0.75), [1, 2]),
        (Filter(top_p=0.9), [0, 1, 2, 3]),
        (Filter(top_p=1e-6), [1]),
        (Filter(top_k=1), [1]),
        (Filter(top_k=3), [0, 1, 2]),
        (Filter(top_k=4), [0, 1, 2, 3, 4]),
        (Filter(top_k=9), [0, 1, 2, 3, 4]),
        (Filter(min_p=0.25), [0, 1, 2]),
        (Filter(min_p=0.26), [1, 2]),
        (Filter(min_p=1.0), [1]),
        # top-p on what top-k left: 4/7, 2/7, 1/7
        (Filter(top_k=3, top_p=0.85), [1, 2]),
        (Filter(top_k=3, top_p=0.86), [0, 1, 2]),
        # top-p on what min-p left: 2/3, 1/3
        (Filter(min_p=0.5, top_p=0.66), [1]),
    ],
)
def test_the_tokens_that_may_be_drawn(keep: Filter, tokens: list[int]) -> None:
    kept = filtered(PROBABILITY.log(), keep)
    assert kept[0].isfinite().nonzero().squeeze(-1).tolist() == tokens
    assert torch.equal(kept[0, tokens], PROBABILITY.log()[0, tokens])


def test_each_row_has_its_own_nucleus() -> None:
    rows = torch.stack([PROBABILITY[0], torch.full((5,), 0.2)]).log()
    kept = filtered(rows, Filter(top_p=0.5)).isfinite().sum(-1)
    assert kept.tolist() == [1, 3]


def test_the_temperature_comes_before_the_filter() -> None:
    # At temperature 1/2 the probabilities are squared: 64 : 16 : 4 : 1 : 1.
    uniform = torch.linspace(0, 1 - 1e-6, 101)
    logits = PROBABILITY.log().expand(101, 5)
    chosen = draw(logits, uniform, 0.5, Filter(top_p=0.75)).tokens
    assert chosen.unique().tolist() == [1, 2]  # 64/86 = 0.744 is not enough
    chosen = draw(logits, uniform, 0.5, Filter(top_p=0.74)).tokens
    assert chosen.unique().tolist() == [1]


def test_a_filtered_draw_and_its_numbers() -> None:
    logits = PROBABILITY.log().expand(20_000, 5)
    uniform = torch.rand(20_000, generator=stream(0, "uniform"))
    drawn = draw(logits, uniform, 1.0, Filter(top_p=0.75))
    chosen, logprob, entropy = drawn.tokens, drawn.logprob, drawn.entropy
    share = torch.bincount(chosen, minlength=5) / 20_000
    assert share[[0, 3, 4]].sum() == 0
    assert share[1] == pytest.approx(2 / 3, abs=0.01)
    assert logprob[chosen == 1][0] == pytest.approx(log(2 / 3))  # renormalised
    assert logprob[chosen == 2][0] == pytest.approx(log(1 / 3))
    whole = log(2) * (1 / 2 + 2 / 4 + 3 / 8 + 4 / 16 + 4 / 16)  # all five tokens
    assert entropy[0] == pytest.approx(whole)


def test_an_evaluation_of_the_likeliest_tokens(model: LanguageModel, tiny: TrainConfig) -> None:
    def row(**options: float) -> dict[str, float | str]:
        settings = EvaluationConfig(problems=8, samples=4, **options)  # pyright: ignore[reportArgumentType]
        config = TrainConfig(rollout=tiny.rollout, evaluation=settings)
        return evaluate(model, Countdown(seed=0), config, 0)

    greedy = row(top_k=1)
    assert greedy["reward/avg"] == greedy["reward/pass"]  # the samples of a problem are all alike
    assert row(top_p=1e-6) == greedy
    assert row(min_p=1.0) == greedy
    assert row(top_k=1, temperature=0.5) == greedy
    assert row() != greedy


@pytest.mark.parametrize("line", ["top_p = 0.9", "top_k = 20", "min_p = 0.1"])
def test_training_on_a_filtered_sample_is_refused(line: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"[rollout]\n{line}\n")
    with pytest.raises(ConfigError, match=r"no importance weight.*evaluation\.\w+ exists"):
        load_config(recipe)


@pytest.mark.parametrize("wrong", [{"top_p": 0.0}, {"top_p": 1.5}, {"top_k": -1}, {"min_p": 2.0}])
def test_a_filter_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        EvaluationConfig(**wrong)  # pyright: ignore[reportArgumentType]
