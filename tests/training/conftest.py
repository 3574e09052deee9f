from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from isentrope.config import (
    CheckpointConfig,
    EvaluationConfig,
    ModelConfig,
    OptimizerConfig,
    RolloutConfig,
    TrainConfig,
)
from isentrope.training.display import Display
from isentrope.training.model import LanguageModel, load_model
from isentrope.training.trainer import train


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model() -> LanguageModel:
    return load_model(ModelConfig(path="builtin:countdown"))


@pytest.fixture(scope="session")
def tiny() -> TrainConfig:
    """A run of seconds."""
    return TrainConfig(
        name="tiny",
        steps=6,
        threads=1,
        probe_tokens=64,
        save_samples_every=3,
        rollout=RolloutConfig(prompts=12, samples=4, max_new_tokens=16),
        optimizer=OptimizerConfig(mini_batches=2, micro_batch_size=16, learning_rate=3e-4),
        evaluation=EvaluationConfig(every=3, problems=8, samples=4),
        checkpoint=CheckpointConfig(every=2, keep=2),
    )


Run = Callable[..., None]


@pytest.fixture(scope="session")
def run() -> Run:
    """Trains quietly: run(config, out, resume=False)."""

    def quietly(config: TrainConfig, out: Path, *, resume: bool = False) -> None:
        with Display(Console(quiet=True)) as display:
            train(config, out, resume=resume, display=display)

    return quietly
