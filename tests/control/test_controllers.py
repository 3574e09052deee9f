from collections.abc import Sequence

import pytest

from isentrope.control.controllers import (
    AdaptiveBonus,
    ConstantBonus,
    Controller,
    DoublingStrength,
    EntropyBudget,
    PIStrength,
    Target,
    TargetBand,
    Tracking,
    state_of,
    with_state,
)


def run(controller: Controller, entropies: Sequence[float]) -> list[Controller]:
    steps: list[Controller] = []
    for entropy in entropies:
        controller = controller.update(entropy)
        steps.append(controller)
    return steps


def coefficients(controller: Controller, entropies: Sequence[float]) -> list[float]:
    return [now.control.entropy_coefficient for now in run(controller, entropies)]


def test_a_constant_bonus_stays() -> None:
    assert coefficients(ConstantBonus(coefficient=0.01), [1.0, 0.1]) == [0.01, 0.01]


def test_the_adaptive_bonus_by_hand() -> None:
    controller = AdaptiveBonus(target=Target(value=0.5), delta=0.1, coefficient_high=0.25)
    # Below, below, below (at the limit), above (0.15, not active), below (0.25), at it (unmoved).
    entropies = [0.4, 0.3, 0.2, 0.6, 0.4, 0.5]
    expected = [0.1, 0.2, 0.25, 0.0, 0.25, 0.25]
    assert coefficients(controller, entropies) == pytest.approx(expected)


def test_the_adaptive_bonus_never_turns_into_a_penalty() -> None:
    controller = AdaptiveBonus(target=Target(value=0.5), delta=0.1)
    assert coefficients(controller, [0.9, 0.9, 0.4]) == pytest.approx([0, 0, 0.1])


def test_the_band_moves_outside_it_only() -> None:
    controller = TargetBand(target=Target(value=0.5), width=0.1, delta=0.1)
    entropies = [0.3, 0.45, 0.55, 0.7, 0.7, 0.7]
    expected = [0.1, 0.1, 0.1, 0.0, -0.1, -0.2]
    assert coefficients(controller, entropies) == pytest.approx(expected)


def test_the_budget_is_zero_at_the_target() -> None:
    controller = EntropyBudget(target=Target(value=0.5), gain=2.0)
    budgets = [now.control.budget for now in run(controller, [0.5, 0.6, 0.45])]
    assert budgets == pytest.approx([0.0, 0.2, -0.1])


def test_the_integral_adds_up_within_its_limit() -> None:
    controller = EntropyBudget(
        target=Target(value=0.5), gain=0.0, integral_gain=1.0, integral_limit=0.15
    )
    budgets = [now.control.budget for now in run(controller, [0.6, 0.6, 0.6, 0.4])]
    assert budgets == pytest.approx([0.1, 0.15, 0.15, 0.05])


def test_the_pi_strength_by_hand() -> None:
    """The sum is that of the errors before; the strength is at most 1 in size."""
    controller = PIStrength(target=Target(value=0.5), gain=2.0, integral_gain=0.5)
    strengths = [now.control.strength for now in run(controller, [0.6, 0.7, 0.4, 1.5, -3.0])]
    #  2 x 0.1;  2 x 0.2 + 0.05;  2 x -0.1 + 0.15;  2 + 0.1;  -7 + 0.6
    assert strengths == pytest.approx([0.2, 0.45, -0.05, 1.0, -1.0])


def test_the_doubling_strength_by_hand() -> None:
    controller = DoublingStrength(
        target=Target(value=0.5), strength_start=0.01, strength_low=0.004, strength_high=0.03
    )
    entropies = [0.4, 0.4, 0.4, 0.6, 0.6, 0.6, 0.6, 0.5, 0.4, 0.4]
    # start; doubled; at its highest; halved twice; turned; doubled; at the target; halved; turned
    expected = [0.01, 0.02, 0.03, 0.015, 0.0075, -0.004, -0.008, -0.008, -0.004, 0.004]
    strengths = [now.control.strength for now in run(controller, entropies)]
    assert strengths == pytest.approx(expected)


def test_a_target_that_is_left_out_is_the_first_entropy() -> None:
    steps = run(EntropyBudget(target=Target()), [0.7, 0.9])
    assert [now.control.target for now in steps] == [0.7, 0.7]
    assert steps[1].control.budget == pytest.approx(0.2)


def test_a_target_falls_linearly_and_stays_at_its_end() -> None:
    controller = EntropyBudget(target=Target(value=1.0, end=0.5, steps=4))
    targets = [now.control.target for now in run(controller, [0.0] * 7)]
    assert targets == pytest.approx([1.0, 0.875, 0.75, 0.625, 0.5, 0.5, 0.5])


def test_a_target_is_held_before_it_is_released() -> None:
    target = Target(value=1.0, end=0.5, hold=2, steps=4)
    targets = [target.at(step, 0.3) for step in range(8)]
    assert targets == pytest.approx([1.0, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.5])


def test_a_cosine_leaves_and_arrives_slowly() -> None:
    target = Target(value=1.0, end=0.5, steps=4, shape="cosine")
    slow = 0.25 * (1 - 2**-0.5)  # half the way times 1 - cos 45 degrees
    targets = [target.at(step, 0.3) for step in range(6)]
    assert targets == pytest.approx([1.0, 1.0 - slow, 0.75, 0.5 + slow, 0.5, 0.5])


def test_a_target_may_be_a_share_of_the_first_entropy() -> None:
    target = Target(value=0.5, end=0.1, steps=2, relative=True)
    assert [target.at(step, 0.6) for step in range(3)] == pytest.approx([0.3, 0.18, 0.06])
    whole = Target(end=0.5, steps=2, relative=True)
    assert [whole.at(step, 0.6) for step in range(3)] == pytest.approx([0.6, 0.45, 0.3])


@pytest.mark.parametrize(
    "controller",
    [
        AdaptiveBonus(target=Target(), delta=0.1),
        TargetBand(target=Target(end=0.1, steps=5), delta=0.1, width=0.01),
        EntropyBudget(target=Target(), integral_gain=0.5),
        PIStrength(target=Target(), integral_gain=0.5),
        DoublingStrength(target=Target(value=0.42)),
    ],
    ids=["adaptive", "band", "budget", "pi", "doubling"],
)
def test_the_state_is_all_that_there_is_to_know(
    controller: Tracking,
) -> None:
    entropies = [0.5, 0.4, 0.6, 0.2, 0.45]
    half = controller
    for entropy in entropies[:3]:
        half = half.update(entropy)
    again = with_state(controller, state_of(half))
    assert again == half
    assert run(again, entropies[3:]) == run(controller, entropies)[3:]
