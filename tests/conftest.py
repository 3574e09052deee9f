"""Shape annotations of the pure modules are checked at run time in tests only."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

install_import_hook("isentrope.objective", "beartype.beartype")
install_import_hook("isentrope.token_stats", "beartype.beartype")

from rich.console import Console  # noqa: E402  after the hook

from isentrope.commands.display import Display  # noqa: E402
from isentrope.config import (  # noqa: E402
    CheckpointConfig,
    EvaluationConfig,
    ModelConfig,
    OptimizerConfig,
    RolloutConfig,
    TrainConfig,
)
from isentrope.policy.model import LanguageModel, load_model  # noqa: E402
from isentrope.training.trainer import train  # noqa: E402


@pytest.fixture
def shared() -> Path:
    """The folder of public logs and data beside the checkout; tests that need it skip without."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("no ../shared folder")
    return folder


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
