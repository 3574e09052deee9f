import pytest
import torch

from isentrope.objective.entropy import entropy_metrics


def test_every_mean_by_hand() -> None:
    """Three prompts; the first two have two responses, of 1 and 2 tokens each."""
    entropy = torch.tensor(
        [[1.0, 9.0], [2.0, 4.0], [0.0, 9.0], [0.2, 0.4], [0.5, 9.0]], dtype=torch.float64
    )
    mask = torch.tensor([[1, 0], [1, 1], [1, 0], [1, 1], [1, 0]], dtype=torch.bool)
    groups = torch.tensor([7, 7, 3, 3, 5])
    found = entropy_metrics(entropy, mask, groups)
    # Responses: 1, 3, 0, 0.3, 0.5. Prompts: 2, 0.15, 0.5.
    assert found["entropy/token_mean"] == pytest.approx(8.1 / 7)
    assert found["entropy/sequence_mean"] == pytest.approx(4.8 / 5)
    assert found["entropy/prompt_median"] == pytest.approx(0.5)
    mean = 2.65 / 3
    variance = ((2 - mean) ** 2 + (0.15 - mean) ** 2 + (0.5 - mean) ** 2) / 3
    assert found["entropy/prompt_std"] == pytest.approx(variance**0.5)


def test_prompts_of_equal_entropy_count_each() -> None:
    entropy = torch.tensor([[1.0], [1.0], [1.0], [5.0]])
    found = entropy_metrics(entropy, torch.ones(4, 1, dtype=torch.bool), torch.arange(4))
    assert found["entropy/prompt_median"] == 1.0
    assert found["entropy/prompt_std"] == pytest.approx(3**0.5)
