"""`isentrope probe MODEL [TASK]`: the entropy mechanism of a model, without training it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from isentrope.config import Scalar, TrainConfig
from isentrope.errors import ConfigError

__all__ = ["Options", "run"]


ROLLOUT_ROWS = {
    "entropy, token mean (nats)": "entropy/token_mean",
    "entropy, sequence mean (nats)": "entropy/sequence_mean",
    "reward": "reward/mean",
    "problems all right": "groups/all_right",
    "problems all wrong": "groups/all_wrong",
    "tokens a response": "length/mean",
    "truncated": "truncated",
}

BOUNDS = {"hard": "<= 1/4", "middle": "between", "easy": ">= 3/4"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Sample responses of MODEL to problems of TASK, and show which of them would move its entropy:
    the covariance of log-probability and advantage, token by token and response by response, by
    the difficulty of the problem."""

    model: tyro.conf.Positional[str]
    """A Hugging Face id, a folder, a .gguf file, or builtin:NAME."""
    task: tyro.conf.Positional[str] = "countdown"
    """Name of the task."""
    task_options: Annotated[dict[str, Scalar], tyro.conf.arg(metavar="NAME VALUE ...")] = field(
        default_factory=dict
    )
    """Options of the task itself."""
    problems: int = 128
    """Training problems."""
    samples: int = 8
    """Responses to each: the group."""
    max_new_tokens: int = 32
    """Longest response."""
    temperature: float = 1.0
    """Sampling temperature."""
    advantage: str = "grpo"
    """Advantage in the covariance."""
    seed: int = 0
    """Seed of problems and samples."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    json: bool = False
    """Print one JSON object in place of tables."""

    def train_config(self) -> TrainConfig:
        """The run whose first step this looks at."""
        from isentrope.config import ModelConfig, ObjectiveConfig, RolloutConfig, TaskConfig

        return TrainConfig(
            seed=self.seed,
            model=ModelConfig(path=self.model, device=self.device),
            task=TaskConfig(name=self.task, options=self.task_options),
            rollout=RolloutConfig(
                prompts=self.problems,
                samples=self.samples,
                max_new_tokens=self.max_new_tokens,
                temperature=self.temperature,
            ),
            objective=ObjectiveConfig(advantage=self.advantage),
        )


def run(options: Options) -> int:
    """Probes the model; returns the exit code."""
    import json
    import sys

    from rich.console import Console

    from isentrope.training.mechanism import probe
    from isentrope.training.run_folder import finite

    config = options.train_config()
    if config.objective.advantage == "prime":
        raise ConfigError(
            "advantage is 'prime', whose rewards come from a model that training makes; choose rloo"
        )
    result = probe(config)
    if options.json:
        sys.stdout.write(json.dumps({key: finite(value) for key, value in result.items()}) + "\n")
        return 0
    console = Console(highlight=False)
    for table in tables(result, options):
        console.print(table)
    return 0


def tables(result: dict[str, float], options: Options) -> list[object]:
    """The rollout; the token covariance, its parts by the signs of its factors, its means by class
    of token; the covariance of responses."""
    tops = {
        f"{float(name):g}": [value, result[f"rewarded/top_{name}"]]
        for name, value in named(result, "covariance/top_")
    }
    parts = {
        name.replace("_", ", "): [result[f"tokens/{name}"], value]
        for name, value in named(result, "covariance/part_")
    }
    classes = {
        name: [share, result[f"covariance/class_{name}"]]
        for name, share in named(result, "tokens/class_")
    }
    return [
        table(
            f"{options.model} on {options.task}",
            ("measured on the rollout", "value"),
            {name: [result[key]] for name, key in ROLLOUT_ROWS.items()},
        ),
        table(
            "token covariance, nats",
            ("mean of the largest", "value", "share rewarded"),
            {**tops, "all tokens": [result["covariance/mean"], rewarded(result)]},
        ),
        table(
            "parts of the mean token covariance, nats", ("tokens", "share of tokens", "part"), parts
        ),
        table("token covariance by class, nats", ("class", "share of tokens", "mean"), classes),
        of_responses(result),
    ]


def of_responses(result: dict[str, float]) -> object:
    """The covariance of responses, by the difficulty of the problem."""
    from rich.table import Table

    responses = Table(title="covariance of responses, mean over problems", title_justify="left")
    for column in ("problems", "count", "A (theorem 2)", "pi A (theorem 1)"):
        responses.add_column(column, justify="left" if column == "problems" else "right")
    for name in ("hard", "middle", "easy"):
        responses.add_row(
            f"{name}: accuracy {BOUNDS[name]}",
            f"{result[f'problems/{name}']:.0f}",
            text(result[f"covariance/sequence_{name}"]),
            text(result[f"covariance/sequence_pi_{name}"]),
        )
    responses.add_row(
        "all with signal",
        f"{result['groups/used']:.0f}",
        text(result["covariance/sequence"]),
        text(result["covariance/sequence_pi"]),
    )
    return responses


def rewarded(result: dict[str, float]) -> float:
    """The share of tokens whose advantage is above the mean."""
    return result["tokens/rewarded_likely"] + result["tokens/rewarded_unlikely"]


def named(result: dict[str, float], start: str) -> list[tuple[str, float]]:
    """The values whose keys begin so, by the rest of the key."""
    return [(key.removeprefix(start), result[key]) for key in result if key.startswith(start)]


def table(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[float]]) -> object:
    """A name and numbers in each row."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        made.add_column(column, justify="right" if place else "left")
    for name, values in rows.items():
        made.add_row(name, *map(text, values))
    return made


def text(value: float) -> str:
    """Four decimals; a dash where there is nothing to average."""
    return "-" if value != value else f"{value:.4f}"
