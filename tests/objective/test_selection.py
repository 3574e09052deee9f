import pytest
import torch

from isentrope.objective.selection import select_budget, select_low_entropy

ROW = torch.tensor([[4.0, -1.0, 2.0, 0.0, -3.0, 99.0]])
MASK = torch.tensor([[True] * 5 + [False]])


def cut(budget: float, **options: float) -> list[bool]:
    return select_budget(ROW, MASK, budget=budget, **options).tolist()[0]


def test_the_fewest_tokens_are_cut_from_the_top() -> None:
    # Five tokens, sum 2, mean 0.4. Without the 4 the sum is -2; without 4 and 2 it is -4.
    assert cut(0.4) == [False] * 6
    assert cut(0.39) == [True] + [False] * 5
    assert cut(-0.4) == [True] + [False] * 5
    assert cut(-0.41) == [True, False, True, False, False, False]


def test_only_tokens_that_lead_to_the_budget_are_cut() -> None:
    assert cut(-100.0) == [True, False, True, False, False, False]


def test_above_the_target_tokens_are_cut_from_the_bottom() -> None:
    # 0.5 x 5 = 2.5: without the -3 the sum is 5, which is enough.
    assert cut(0.5) == [False, False, False, False, True, False]
    assert cut(1.1) == [False, True, False, False, True, False]
    assert cut(100.0) == [False, True, False, False, True, False]


def test_below_a_negative_budget_nothing_is_cut() -> None:
    below = torch.tensor([[1.0, -3.0]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    assert not select_budget(below, mask, budget=-0.5).any()
    assert not select_budget(below, mask, budget=0.0).any()


def test_the_cut_has_a_limit() -> None:
    assert cut(-100.0, clip_fraction=0.2) == [True] + [False] * 5
    assert cut(-100.0, clip_fraction=0.1) == [False] * 6


def test_equal_covariances_go_in_row_order() -> None:
    equal = torch.tensor([[1.0, 1.0, 1.0, 1.0]])
    mask = torch.ones(1, 4, dtype=torch.bool)
    chosen = select_budget(equal, mask, budget=0.5)
    assert chosen.tolist() == [[True, True, False, False]]


def test_no_tokens_no_cut() -> None:
    nothing = torch.zeros_like(MASK)
    assert not select_budget(ROW, nothing, budget=-1.0).any()
    assert not select_low_entropy(ROW, nothing, entropy=ROW).any()


def test_all_but_the_tokens_of_highest_entropy_are_selected() -> None:
    entropy = torch.tensor([[0.1, 0.9, 0.3, 0.9, 0.2, 5.0]])
    chosen = select_low_entropy(ROW, MASK, entropy=entropy, entropy_fraction=0.4)
    assert chosen.tolist() == [[True, False, True, False, True, False]]
    half = select_low_entropy(ROW, MASK, entropy=entropy, entropy_fraction=0.2)
    assert half.tolist() == [[True, False, True, True, True, False]]  # the first of two equals


@pytest.mark.parametrize("width", [0, 3])
def test_padding_changes_no_selection(width: int) -> None:
    wide = torch.nn.functional.pad(ROW, (0, width), value=7.0)
    mask = torch.nn.functional.pad(MASK, (0, width))
    assert select_budget(wide, mask, budget=0.0).tolist()[0][:6] == cut(0.0)
