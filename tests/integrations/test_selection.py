"""Selection over a mini-batch: by content, whatever the order and padding of its responses."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from isentrope.errors import ConfigError
from isentrope.integrations.refusal import check_release
from isentrope.integrations.selection import (
    Tokens,
    choose,
    draws,
    remarks,
    row_keys,
    selector,
    shaper,
)
from isentrope.objective.shaping import budget_by_success


def batch(seed: int = 0) -> tuple[Tensor, Tokens]:
    """Token ids (12, 9) and the tokens of 12 responses; the first two are the same."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(50, (12, 9), generator=draw)
    mask = torch.arange(9) < torch.randint(3, 10, (12, 1), generator=draw)
    logprob, advantage = -3 * torch.rand(12, 9, generator=draw), torch.randn(12, 1, generator=draw)
    for values in (ids, mask, logprob, advantage):
        values[1] = values[0]
    return ids, Tokens(row_keys(ids, mask), logprob, advantage, mask)


def test_keys_depend_on_tokens_and_their_places_only() -> None:
    ids = torch.tensor([[7, 8, 9, 0, 0], [0, 0, 7, 8, 9], [8, 7, 9, 0, 0], [7, 8, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    keys = row_keys(ids, mask)
    assert keys[0] == keys[1]  # padding left or right
    assert len(set(keys.tolist())) == 3
    ids[0, 3] = 5
    assert row_keys(ids, mask)[0] == keys[0]


@pytest.mark.parametrize(
    ("loss", "knobs", "expected"),
    [
        # 71 tokens: floor(0.1 x 71) of the largest covariance
        ("kl_cov", {"kl_fraction": 0.1}, 7),
        ("clip_cov", {"clip_fraction": 0.1, "covariance_low": 0.1, "covariance_high": 9.0}, 7),
    ],
)
def test_the_order_of_the_responses_changes_nothing(
    loss: str, knobs: dict[str, float | None], expected: int
) -> None:
    _, tokens = batch()
    assert int(tokens.mask.sum()) == 71
    whole = choose(tokens, selector(loss, knobs), draws(3, 5))
    order = torch.tensor([3, 0, 11, 1, 7, 2, 10, 4, 9, 5, 8, 6])  # the equal rows in their order
    other = choose(tokens.ordered(order), selector(loss, knobs), draws(3, 5))
    assert int(whole.selected.sum()) == expected
    assert torch.equal(other.selected, whole.selected[order])
    assert torch.equal(other.covariance, whole.covariance[order])
    assert other.metrics == whole.metrics


@pytest.mark.parametrize("control", ["success", "decorrelation"])
def test_the_order_of_the_responses_changes_no_reshaped_advantage(control: str) -> None:
    _, tokens = batch()
    whole = choose(tokens, None, draws(0, 0), shape=shaper(control, 0.01))
    order = torch.tensor([3, 0, 11, 1, 7, 2, 10, 4, 9, 5, 8, 6])
    other = choose(tokens.ordered(order), None, draws(0, 0), shape=shaper(control, 0.01))
    assert torch.equal(other.advantage, whole.advantage[order])
    assert whole.metrics["covariance/mean"] == pytest.approx(0.01, abs=1e-6)
    plain = choose(tokens, None, draws(0, 0))
    assert torch.equal(plain.advantage, tokens.advantage.expand(12, 9))
    assert plain.metrics["covariance/mean"] > 0.01


def test_a_control_that_cuts_reshapes_nothing() -> None:
    _, tokens = batch()
    assert [shaper(control, 0.0) for control in ("none", "clip_cov", "budget")] == [None] * 3
    shape = shaper("success", 0.01)
    assert shape is not None
    advantage = tokens.advantage.expand(12, 9)
    found = shape(advantage, tokens.mask, logprob=tokens.logprob)
    alone = budget_by_success(advantage, tokens.mask, logprob=tokens.logprob, budget=0.01)
    assert torch.equal(found, alone)


def test_the_draw_is_a_function_of_seed_and_update() -> None:
    first, again, next_update, other_seed = (
        torch.rand(4, generator=draws(*at)) for at in ((1, 2), (1, 2), (1, 3), (2, 2))
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, next_update)
    assert not torch.equal(first, other_seed)


def test_metrics_that_are_not_defined_are_left_out() -> None:
    metrics = choose(batch()[1], None, draws(0, 0)).metrics
    assert "covariance/top_0.0002" not in metrics  # less than one token of 71
    assert "covariance/top_0.02" in metrics
    assert metrics["selected/tokens"] == 0


def test_a_knob_of_another_loss_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kl_fraction is 0\.1, but clip_cov does not use it"):
        selector("clip_cov", {"kl_fraction": 0.1})
    with pytest.raises(ConfigError, match="there is no loss 'clipcov'"):
        selector("clipcov", {})


@pytest.mark.parametrize(
    ("loss", "knobs", "message"),
    [
        ("kl_cov", {"kl_fraction": 20.0}, "a fraction between 0 and 1"),
        ("clip_cov", {"clip_fraction": -0.1}, "a fraction between 0 and 1"),
        ("clip_cov", {"covariance_low": 5.0, "covariance_high": 1.0}, "lower bound is above"),
        ("clip_cov", {"covariance_low": float("nan")}, "a finite number"),
    ],
)
def test_the_bounds_of_recipes_hold_in_every_adapter(
    loss: str, knobs: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        selector(loss, knobs)


def test_a_large_fraction_is_remarked_on() -> None:
    assert remarks({"kl_fraction": 0.05, "clip_fraction": None}) == []
    (remark,) = remarks({"kl_fraction": 0.2})
    assert "kl_fraction is 0.2: 20% of the tokens" in remark


def test_without_a_difference_in_reward_kl_cov_selects_nothing() -> None:
    _, tokens = batch()
    select = selector("kl_cov", {"kl_fraction": 0.1})
    even = replace(tokens, advantage=torch.zeros(12, 1))
    assert not choose(even, select, draws(0, 0)).selected.any()


@pytest.mark.parametrize("installed", ["0.8.0", "0.9.0", "0.10.1"])
def test_a_release_that_was_not_tried_is_refused(installed: str) -> None:
    check_release("verl", "0.9.1", "0.9.1")
    check_release("TRL", "1.16.3", "1.16")
    with pytest.raises(ConfigError, match=r"pip install 'verl>=0.9.1,<0.9.2'"):
        check_release("verl", installed, "0.9.1")
