import math

import pytest
import torch

from isentrope.objective.covariance import (
    QUADRANTS,
    covariance_metrics,
    moments,
    quadrants,
    quota,
    rewarded_tokens,
    select_top,
    select_window,
    selection_metrics,
    sequence_covariance,
    token_covariance,
    top_means,
)

ADVANTAGE = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
LOGPROB = torch.tensor([[-0.1, -0.2], [-2.0, -3.0]])
ALL = torch.ones(2, 2, dtype=torch.bool)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_batch(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    source = generator(seed)
    logprob = -torch.rand(16, 40, generator=source).exponential_(generator=source)
    advantage = torch.randn(16, 1, generator=source).expand(16, 40)
    lengths = torch.randint(1, 41, (16, 1), generator=source)
    return logprob, advantage, torch.arange(40) < lengths


def test_a_token_that_no_policy_draws_has_no_covariance() -> None:
    logprob = torch.tensor([[-0.1, -0.2, -math.inf], [-2.0, -3.0, -1.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    covariance = token_covariance(logprob, ADVANTAGE[:, :1].expand(2, 3), mask)
    # The four others are those of the test by hand.
    assert covariance[mask].tolist() == pytest.approx([1.225, 1.125, 0, 0.675, 1.675])
    assert select_top(covariance, mask, kl_fraction=0.2).nonzero().tolist() == [[1, 1]]


def test_covariance_by_hand() -> None:
    covariance = token_covariance(LOGPROB, ADVANTAGE, ALL)
    assert covariance.flatten().tolist() == pytest.approx([1.225, 1.125, 0.675, 1.675])
    assert float(covariance.mean()) == pytest.approx(1.175)


def test_the_covariance_carries_no_gradient() -> None:
    assert not token_covariance(LOGPROB.clone().requires_grad_(), ADVANTAGE, ALL).requires_grad


def test_a_constant_advantage_has_no_covariance() -> None:
    covariance = token_covariance(LOGPROB, torch.ones(2, 2), ALL)
    assert covariance.tolist() == [[0, 0], [0, 0]]
    assert not select_window(covariance, ALL, clip_fraction=0.5, generator=generator()).any()
    assert not select_top(covariance, ALL, kl_fraction=0.25).any()


def test_a_tie_is_taken_in_row_order() -> None:
    chosen = select_top(torch.full((2, 2), 0.5), ALL, kl_fraction=0.25)
    assert chosen.flatten().tolist() == [True, False, False, False]


def test_kl_cov_takes_the_largest() -> None:
    covariance = token_covariance(LOGPROB, ADVANTAGE, ALL)
    chosen = select_top(covariance, ALL, kl_fraction=2e-4, at_least=1)
    assert chosen.flatten().nonzero().flatten().tolist() == [3]


def test_clip_cov_draws_from_the_window_and_repeats_by_seed() -> None:
    covariance = token_covariance(LOGPROB, ADVANTAGE, ALL)
    picks = [
        select_window(covariance, ALL, generator=generator(seed), at_least=1).flatten()
        for seed in range(64)
    ]
    assert all(int(pick.sum()) == 1 for pick in picks)
    assert {int(pick.nonzero()) for pick in picks} == {0, 1, 3}
    again = select_window(covariance, ALL, generator=generator(5), at_least=1).flatten()
    assert torch.equal(picks[5], again)


def test_the_window_holds_its_bounds() -> None:
    covariance, mask = torch.tensor([[1.0, 5.0, 0.99, 5.01]]), torch.ones(1, 4, dtype=torch.bool)
    chosen = select_window(covariance, mask, clip_fraction=1.0, generator=generator())
    assert chosen.tolist() == [[True, True, False, False]]


@pytest.mark.parametrize(
    ("count", "fraction", "at_least", "expected"),
    [
        (10_000, 0.2 / 100, 0, 20),
        (10_000, 0.0002, 0, 2),
        (10_000, 0.2, 0, 2_000),
        (3, 0.0002, 1, 1),
        (3, 0.0002, 0, 0),
        (0, 0.0002, 1, 0),
        (100, 0.29, 0, 29),
    ],
)
def test_quota(count: int, fraction: float, at_least: int, expected: int) -> None:
    assert quota(count, fraction, at_least) == expected


@pytest.mark.parametrize("size", [1, 3, 16])
def test_the_split_into_micro_batches_changes_nothing(size: int) -> None:
    logprob, advantage, mask = random_batch(1)
    whole = token_covariance(logprob, advantage, mask)
    parts = [slice(i, i + size) for i in range(0, 16, size)]
    total = moments(logprob[parts[0]], advantage[parts[0]], mask[parts[0]])
    for part in parts[1:]:
        total = total + moments(logprob[part], advantage[part], mask[part])
    split = torch.cat([token_covariance(logprob[p], advantage[p], mask[p], total) for p in parts])
    assert torch.allclose(split, whole, atol=1e-6)
    chosen = select_top(whole, mask, kl_fraction=0.05)
    assert torch.equal(select_top(split, mask, kl_fraction=0.05), chosen)


def test_padding_changes_no_selection() -> None:
    logprob, advantage, mask = random_batch(2)
    covariance = token_covariance(logprob, advantage, mask)
    wider = torch.nn.functional.pad(covariance, (0, 7), value=math.nan)
    wider_mask = torch.nn.functional.pad(mask, (0, 7))
    for narrow, wide in [
        (
            select_top(covariance, mask, kl_fraction=0.05),
            select_top(wider, wider_mask, kl_fraction=0.05),
        ),
        (
            select_window(
                covariance, mask, clip_fraction=0.1, covariance_low=0.0, generator=generator()
            ),
            select_window(
                wider, wider_mask, clip_fraction=0.1, covariance_low=0.0, generator=generator()
            ),
        ),
    ]:
        assert int(narrow.sum()) > 10
        assert torch.equal(narrow, wide[:, :40])


def test_no_token_no_crash() -> None:
    nothing = torch.zeros(2, 2, dtype=torch.bool)
    covariance = token_covariance(LOGPROB, ADVANTAGE, nothing)
    assert covariance.tolist() == [[0, 0], [0, 0]]
    assert not select_top(covariance, nothing, kl_fraction=1.0).any()
    assert not select_window(covariance, nothing, clip_fraction=1.0, generator=generator()).any()


def test_parts_of_the_covariance_by_hand() -> None:
    """Four tokens, advantages +-1, log-probs -1 and -3: (l - mean l) is +-1, so Cov is +-1."""
    logprob = torch.tensor([[-1.0, -3.0, -1.0, -3.0, 9.0]])
    advantage = torch.tensor([[1.0, 1.0, -1.0, -1.0, 9.0]])
    mask = torch.tensor([[True, True, True, True, False]])
    covariance = token_covariance(logprob, advantage, mask)
    rewarded = rewarded_tokens(advantage, mask)
    found = quadrants(covariance, rewarded, mask)
    assert {name: of_it[0].nonzero().flatten().tolist() for name, of_it in found.items()} == {
        "rewarded_likely": [0],
        "rewarded_unlikely": [1],
        "punished_likely": [2],
        "punished_unlikely": [3],
    }
    metrics = covariance_metrics(covariance, rewarded, mask)
    parts = [metrics[f"covariance/part_{name}"] for name in QUADRANTS]
    assert parts == [0.25, -0.25, -0.25, 0.25]
    assert metrics["covariance/mean"] == 0.0
    # Of two tokens with covariance 1 one is rewarded, the first in row order.
    assert metrics["rewarded/top_0.5"] == 0.5
    assert math.isnan(metrics["rewarded/top_0.2"])
    selected = torch.tensor([[False, True, False, True, False]])
    assert selection_metrics(covariance, rewarded, selected, mask)["selected/rewarded"] == 0.5


def test_a_token_without_covariance_is_in_no_part() -> None:
    covariance, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    rewarded = rewarded_tokens(torch.tensor([[1.0], [-1.0]]).expand(2, 3), mask)
    assert rewarded.sum() == 3
    assert not any(of_it.any() for of_it in quadrants(covariance, rewarded, mask).values())


def test_the_parts_of_the_covariance_add_up() -> None:
    draw = torch.Generator().manual_seed(0)
    logprob = -torch.rand(6, 9, generator=draw)
    advantage = torch.randn(6, 1, generator=draw).expand(6, 9)
    mask = torch.rand(6, 9, generator=draw) > 0.2
    covariance = token_covariance(logprob, advantage, mask)
    metrics = covariance_metrics(covariance, rewarded_tokens(advantage, mask), mask)
    parts = [metrics[f"covariance/part_{name}"] for name in QUADRANTS]
    assert sum(parts) == pytest.approx(metrics["covariance/mean"], abs=1e-6)
    assert [part > 0 for part in parts] == [True, False, False, True]
    assert sum(metrics[f"tokens/{name}"] for name in QUADRANTS) == pytest.approx(1)


def test_top_means_by_hand() -> None:
    covariance = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    mask = torch.ones(1, 4, dtype=torch.bool)
    quarter, half, whole, nothing = top_means(covariance, mask, [0.25, 0.5, 1.0, 0.1])
    assert (float(quarter), float(half), float(whole)) == (4.0, 3.5, 2.5)
    assert math.isnan(float(nothing))


def test_sequence_covariance_by_hand() -> None:
    # Group 0: mean log-probs -1 and -3, A 1 and -1: (1 x 1 + (-1)(-1)) / 2 = 1. Group 1: alone, 0.
    logprob = torch.tensor([[-0.5, -1.5], [-3.0, 8.0], [-2.0, -2.0]])
    advantage = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [5.0, 5.0]])
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    groups = torch.tensor([4, 4, 2])
    plain = sequence_covariance(logprob, advantage, mask, groups)
    assert plain.tolist() == pytest.approx([1.0, 1.0, 0.0])
    # With pi A: values e^-1 and -e^-3, centred +-(e^-1 + e^-3) / 2, times +-1.
    weighted = sequence_covariance(logprob, advantage, mask, groups, times_probability=True)
    expected = (math.exp(-1) + math.exp(-3)) / 2
    assert weighted.tolist() == pytest.approx([expected, expected, 0.0])
