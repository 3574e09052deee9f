import pytest
import torch

from isentrope.policy.packing import micro_batches
from isentrope.policy.sampler import Rollout


def rollout(groups: list[list[int]], prompt: int) -> Rollout:
    """Responses of these lengths; each group has a prompt of its own, `prompt` tokens long."""
    lengths = torch.tensor([length for group in groups for length in group])
    owner = torch.tensor([number for number, group in enumerate(groups) for _ in group])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    numbers = mask.float()
    return Rollout(
        prompts=owner[:, None].expand(-1, prompt),
        prompt_mask=torch.ones(len(owner), prompt, dtype=torch.bool),
        tokens=mask.long(),
        mask=mask,
        logprob=numbers,
        sampler_logprob=numbers,
        entropy=numbers,
        truncated=mask.all(-1),
    )


@pytest.mark.parametrize(
    ("prompt", "shared", "expected"),
    [
        # By length: 2 x 1 + 2 x 9 and 2 x 1 + 2 x 1, 24 tokens in all; by group 2 (1 + 18) = 38.
        (1, True, [[1, 2], [0, 3]]),
        # By length: 40 + 18 + 40 + 2 = 100; by group 2 (20 + 18) = 76.
        (20, True, [[1, 0], [2, 3]]),
        # No prompt is shared: by group it is 2 (40 + 18) = 116.
        (20, False, [[1, 2], [0, 3]]),
    ],
)
def test_the_order_is_that_with_less_to_read(
    prompt: int, shared: bool, expected: list[list[int]]
) -> None:
    parts = micro_batches(rollout([[1, 9], [9, 1]], prompt), 2, shared=shared)
    assert [rows.tolist() for rows in parts] == expected


def test_groups_come_by_their_longest_response() -> None:
    parts = micro_batches(rollout([[3, 2], [1, 1], [5, 4]], 50), 2)
    assert [rows.tolist() for rows in parts] == [[4, 5], [0, 1], [2, 3]]


def test_responses_of_a_prompt_stand_side_by_side_in_a_micro_batch() -> None:
    # By length, as no more than one of a group is long: 6 6 5 | 2 2 1.
    parts = micro_batches(rollout([[6, 2, 5], [1, 6, 2]], 1), 3)
    assert [rows.tolist() for rows in parts] == [[0, 2, 4], [1, 5, 3]]


def test_every_row_comes_once_and_one_micro_batch_keeps_its_order() -> None:
    draw = torch.Generator().manual_seed(0)
    groups = torch.randint(1, 40, (7, 5), generator=draw).tolist()
    whole = rollout(groups, 3)
    parts = micro_batches(whole, 8)
    assert [len(rows) for rows in parts] == [8, 8, 8, 8, 3]
    assert sorted(torch.cat(parts).tolist()) == list(range(35))
    longest = [int(whole.mask[rows].sum(-1).max()) for rows in parts]
    assert longest == sorted(longest, reverse=True)
    assert [rows.tolist() for rows in micro_batches(whole, 35)] == [list(range(35))]
