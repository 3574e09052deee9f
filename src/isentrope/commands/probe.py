"""`isentrope probe MODEL [TASK]`: the entropy mechanism of a model, without training it."""

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
    from isentrope.training.run_dir import finite

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
    """Four tables: the rollout, the token covariance, the same by class of token, the covariance
    of responses."""
    from rich.table import Table

    rollout = Table(title=f"{options.model} on {options.task}", title_justify="left")
    rollout.add_column("measured on the rollout")
    rollout.add_column("value", justify="right")
    for name, key in ROLLOUT_ROWS.items():
        rollout.add_row(name, text(result[key]))
    tokens = Table(title="token covariance, nats", title_justify="left")
    tokens.add_column("mean of the largest")
    tokens.add_column("value", justify="right")
    for key in result:
        if key.startswith("covariance/top_"):
            tokens.add_row(f"{float(key.removeprefix('covariance/top_')):g}", text(result[key]))
    tokens.add_row("all tokens", text(result["covariance/mean"]))
    classes = Table(title="token covariance by class, nats", title_justify="left")
    for column in ("class", "share of tokens", "mean"):
        classes.add_column(column, justify="left" if column == "class" else "right")
    for key in result:
        if key.startswith("tokens/class_"):
            name = key.removeprefix("tokens/class_")
            classes.add_row(name, text(result[key]), text(result[f"covariance/class_{name}"]))
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
    return [rollout, tokens, classes, responses]


def text(value: float) -> str:
    """Four decimals; a dash where there is nothing to average."""
    return "-" if value != value else f"{value:.4f}"
