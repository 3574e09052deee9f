"""What does not fit in memory is halved, and the numbers stay those of the smaller size."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor

from isentrope.commands.display import Display
from isentrope.config import ObjectiveConfig, TrainConfig
from isentrope.errors import ConfigError
from isentrope.objective.streams import stream
from isentrope.policy.memory import RowLimit
from isentrope.policy.model import LanguageModel
from isentrope.policy.sampler import sample
from isentrope.tasks.countdown import Countdown
from isentrope.training.experience import Experience, collect
from isentrope.training.objective import make_objective
from isentrope.training.trainer import train
from isentrope.training.update import Learner

MESSAGES = ("CUDA out of memory. Tried to allocate 2.00 GiB.", "can't allocate memory: you tried")


class Small:
    """A memory that holds `rows` rows: the forward or the backward pass of more of them fails."""

    def __init__(self, network: torch.nn.Module, rows: int, *, backward: bool) -> None:
        self.rows = rows
        self.backward = backward
        self.failures = 0
        layer = network.get_submodule("model.layers.0.mlp")
        self.handle = layer.register_forward_hook(self.check)

    def check(self, module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if len(output) <= self.rows:
            return
        if not self.backward:
            self.fail()
        elif output.requires_grad:
            output.register_hook(lambda gradient: self.fail())

    def fail(self) -> None:
        self.failures += 1
        raise torch.OutOfMemoryError(MESSAGES[0])


@contextmanager
def small_memory(network: torch.nn.Module, rows: int, *, backward: bool) -> Iterator[Small]:
    memory = Small(network, rows, backward=backward)
    yield memory
    memory.handle.remove()


@pytest.fixture(scope="module")
def experience(model: LanguageModel, tiny: TrainConfig) -> Experience:
    return collect(model, Countdown(seed=0), tiny, 0).learnable(True)


def learner_of(
    model: LanguageModel, tiny: TrainConfig, objective: ObjectiveConfig, size: int
) -> Learner:
    network = copy.deepcopy(model.network)
    return Learner(
        replace(
            tiny, objective=objective, optimizer=replace(tiny.optimizer, micro_batch_size=size)
        ),
        make_objective(objective),
        replace(model, network=network, training_rows=RowLimit()),
        model if objective.reference_kl_coefficient else None,
        torch.optim.SGD(network.parameters(), lr=0.1),
    )


def updated(
    learner: Learner, experience: Experience
) -> tuple[list[Tensor], Tensor, dict[str, float]]:
    mask = experience.rollout.mask
    advantage = learner.objective.credit(experience.rewards, experience.groups, mask)
    metrics, _, selected = learner.update(experience.rollout, advantage, experience.groups, 0)
    return list(learner.model.network.parameters()), selected, metrics


ARMS = {
    "kl_cov current": ObjectiveConfig(loss="kl_cov", kl_fraction=0.05, covariance_policy="current"),
    "in micro-batches": ObjectiveConfig(
        loss="clip_cov", clip_fraction=0.05, covariance_low=0.1, selection="micro_batch"
    ),
    "reference": ObjectiveConfig(reference_kl_coefficient=0.1, entropy_coefficient=0.01),
}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("arm", sorted(ARMS))
def test_a_halved_micro_batch_gives_the_numbers_of_the_smaller_size(
    model: LanguageModel, experience: Experience, tiny: TrainConfig, arm: str, backward: bool
) -> None:
    expected = updated(learner_of(model, tiny, ARMS[arm], 4), experience)
    learner = learner_of(model, tiny, ARMS[arm], 16)
    with small_memory(learner.model.network, 7, backward=backward) as memory:
        parameters, selected, metrics = updated(learner, experience)
    assert memory.failures == 2  # 16 and 8 rows; 4 fit, and no step tries more again
    for one, other in zip(parameters, expected[0], strict=True):
        assert torch.equal(one, other)
    assert torch.equal(selected, expected[1])
    with_size = {**expected[2], "micro_batch_size": 4}
    assert metrics == pytest.approx(with_size, rel=0, abs=0, nan_ok=True)


def test_one_response_that_does_not_fit_is_an_error(
    model: LanguageModel, experience: Experience, tiny: TrainConfig
) -> None:
    learner = learner_of(model, tiny, ObjectiveConfig(), 16)
    with (
        small_memory(learner.model.network, 0, backward=True),
        pytest.raises(ConfigError, match=r"hold 1 response at once \(CUDA out of.*gradient_check"),
    ):
        updated(learner, experience)


def failing_above(limit: int, message: str) -> Callable[[int], int]:
    def work(size: int) -> int:
        if size > limit:
            raise RuntimeError(message)
        return size

    return work


@pytest.mark.parametrize("message", MESSAGES)
def test_the_largest_half_that_fits(message: str) -> None:
    limit = RowLimit()
    assert limit.fit(failing_above(30, message), 100) == 25
    assert limit.fit(failing_above(30, message), 100) == 25
    assert limit.fit(failing_above(30, message), 10) == 10
    assert limit.metric("rows", 100) == {"rows": 25}
    assert limit.fit(failing_above(9, message), 100, least=8) == 8
    with pytest.raises(ConfigError, match="8 responses"):
        limit.fit(failing_above(7, message), 100, least=8)


def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        RowLimit().fit(failing_above(1, "shapes cannot be multiplied"), 2)


def test_the_allocator_of_the_cpu_is_understood() -> None:
    limit = RowLimit()
    assert limit.fit(lambda size: len(torch.empty(1 if size < 8 else 10**15)), 8) == 1
    assert limit.rows == 4


def test_sampling_halves_too_and_gives_the_same_samples(model: LanguageModel) -> None:
    task = Countdown(seed=1)
    prompts = [model.encode(task.train(i).prompt) for i in range(6)]
    options = {"samples": 4, "temperature": 1.0, "max_new_tokens": 12}
    expected = sample(model, prompts, generator=stream(0, "a"), **options)
    fresh = replace(model, sampling_rows=RowLimit())
    sizes = []
    with small_memory(model.network, 11, backward=False) as memory:
        rollout = sample(
            fresh,
            prompts,
            generator=stream(0, "a"),
            on_part=lambda part, _: sizes.append(len(part.tokens)),
            **options,
        )
    assert memory.failures == 2  # 24 rows, then 12; 6 rows are one group of 4
    assert sizes == [4] * 6
    assert torch.equal(rollout.tokens, expected.tokens)
    assert fresh.sampling_rows.metric("sampling_rows", 1024) == {"sampling_rows": 6}


def test_a_run_says_once_that_memory_ran_out(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backward = Tensor.backward

    def too_large(loss: Tensor, **options: object) -> None:
        if len(sizes) < 1:
            sizes.append(1)
            raise RuntimeError(MESSAGES[1])
        backward(loss)

    sizes: list[int] = []
    monkeypatch.setattr(Tensor, "backward", too_large)
    console = Console(record=True, width=200, file=StringIO())
    with Display(console) as display:
        train(replace(tiny, steps=3), tmp_path / "run", resume=False, display=display)
    assert (
        console.export_text().count("note: memory ran out; going on with micro_batch_size 8") == 1
    )
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count('"micro_batch_size": 8') == 3
