"""The settings of a training run: one dataclass a section, each field documented once.

A recipe is a TOML file with these sections; the flags of `isentrope train` are derived from the
same classes. Precedence: default, then recipe, then flag. This module loads no torch.
"""

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from isentrope.errors import ConfigError

__all__ = [
    "CheckpointConfig",
    "EvaluationConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "OptimizerConfig",
    "RolloutConfig",
    "TaskConfig",
    "TrainConfig",
    "differences",
    "dump_toml",
    "load_config",
]

T = TypeVar("T")
Scalar = bool | int | float | str


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The language model to train."""

    path: str = "builtin:countdown"
    """A Hugging Face id, a folder, a .gguf file, or builtin:NAME."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda where there is one."""
    prompt: Literal["plain", "chat"] = "plain"
    """plain gives the problem as it is, for base models; chat wraps it in the model's template."""
    system: str | None = None
    """System prompt, for chat."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, one more forward pass."""

    def __post_init__(self) -> None:
        if self.system is not None and self.prompt != "chat":
            raise ConfigError("system is set, but prompt is 'plain'; set model.prompt to 'chat'")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskConfig:
    """What to train on, and how answers are verified."""

    name: str = "countdown"
    """Name of the task."""
    options: dict[str, Scalar] = field(default_factory=dict)
    """Options of the task itself; its documentation lists them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutConfig:
    """Sampling of responses from the policy."""

    prompts: int = 64
    """Problems in a step."""
    samples: int = 8
    """Responses to each problem: the group."""
    temperature: float = 1.0
    """Sampling temperature. The losses use log-probabilities at this temperature; the logged
    entropy is at temperature 1."""
    max_new_tokens: int = 32
    """Longest response; a longer one is cut and counted as truncated."""
    rows: int = 1024
    """Responses sampled at once. It changes memory and speed, not the samples."""

    def __post_init__(self) -> None:
        at_least(self, prompts=1, samples=2, max_new_tokens=1, rows=1)
        above(self, temperature=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveConfig:
    """From rewards to a loss. A knob left out has the default of the chosen loss; one that the
    chosen loss does not use is refused."""

    advantage: str = "grpo"
    """grpo, dr_grpo, rloo, opo, reinforce_pp or reinforce_pp_baseline."""
    loss: str = "ppo_clip"
    """policy_gradient, ppo_clip, clip_cov or kl_cov."""
    reducer: Literal["token_mean", "sequence_mean", "sequence_sum"] = "token_mean"
    """How the losses of tokens become one number; sequence_sum divides by max_new_tokens."""
    clip_low: float | None = None
    """The ratio is clipped below 1 - clip_low (0.2 in ppo_clip, none in clip_cov and kl_cov)."""
    clip_high: float | None = None
    """The ratio is clipped above 1 + clip_high (0.2; clip-higher is 0.28)."""
    dual_clip: float | None = None
    """For A < 0 the loss is at most dual_clip x |A| (off)."""
    clip_fraction: float | None = None
    """Clip-Cov: fraction of the mini-batch's tokens whose gradient is cut (2e-4)."""
    covariance_low: float | None = None
    """Clip-Cov: lower bound of the covariance of the tokens to cut (1)."""
    covariance_high: float | None = None
    """Clip-Cov: upper bound of the covariance of the tokens to cut (5)."""
    kl_fraction: float | None = None
    """KL-Cov: fraction of the mini-batch's tokens that are penalised (2e-3)."""
    kl_coefficient: float | None = None
    """KL-Cov: weight of the penalty (1)."""
    kl_estimator: Literal["abs", "k1", "k2", "k3"] | None = None
    """KL-Cov: estimator of the penalty (abs, as in the paper's code)."""
    covariance_policy: Literal["behaviour", "current"] = "behaviour"
    """Log-probabilities in the covariance: of the policy that sampled (no cost), or of the policy
    at the start of each mini-batch (one more forward pass)."""
    selection: Literal["mini_batch", "micro_batch"] = "mini_batch"
    """Tokens are selected over the whole mini-batch, or, to compare with other software, in each
    micro-batch."""
    entropy_coefficient: float = 0.0
    """Weight of an entropy bonus in the loss."""
    reference_kl_coefficient: float = 0.0
    """Weight of KL(policy || start policy) in the loss."""
    reference_kl_estimator: Literal["abs", "k1", "k2", "k3"] = "k3"
    """Estimator of that KL."""
    drop_zero_signal: bool = True
    """Leave out groups whose rewards are all equal."""

    def __post_init__(self) -> None:
        at_least(self, clip_low=0, clip_high=0, dual_clip=1, kl_coefficient=0)
        at_least(self, reference_kl_coefficient=0)
        fractions(self, "clip_fraction", "kl_fraction")


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """AdamW, and how a rollout is divided into updates."""

    learning_rate: float = 1e-4
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after the warm-up; linear and cosine end at 0."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises from 0."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    beta1: float = 0.9
    """Decay of the gradient's running mean."""
    beta2: float = 0.95
    """Decay of the squared gradient's running mean."""
    gradient_clip: float = 1.0
    """Largest norm of the gradient."""
    mini_batches: int = 4
    """Updates in a step: the groups of a rollout are dealt into this many mini-batches."""
    micro_batch_size: int = 128
    """Responses in one forward and backward pass. It changes memory and speed, not the update."""

    def __post_init__(self) -> None:
        above(self, learning_rate=0.0, gradient_clip=0.0)
        at_least(self, warmup_steps=0, mini_batches=1, micro_batch_size=1, weight_decay=0)
        fractions(self, "beta1", "beta2")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """Reward and entropy of one set of weights on held-out problems."""

    every: int = 10
    """Steps between evaluations; the first is before any training, the last after all."""
    problems: int = 128
    """Held-out problems."""
    samples: int = 8
    """Responses to each: k of avg@k and pass@k."""
    temperature: float = 1.0
    """Sampling temperature."""

    def __post_init__(self) -> None:
        at_least(self, every=1, problems=1, samples=1)
        above(self, temperature=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """What a run can be resumed from."""

    every: int = 25
    """Steps between checkpoints; the last step has one too."""
    keep: int = 2
    """Newest checkpoints that are kept."""

    def __post_init__(self) -> None:
        at_least(self, every=1, keep=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """A training run."""

    name: str = "run"
    """Name of the run; reports call the arm by it."""
    seed: int = 0
    """The one seed from which every random stream is derived."""
    steps: int = 200
    """Rollouts, each followed by its updates."""
    threads: int = 0
    """CPU threads of torch; 0 leaves torch's own choice. Tiny models are fastest with 1."""
    probe_tokens: int = 512
    """Tokens on which the entropy change of a step is predicted and measured; 0 turns it off."""
    save_samples_every: int = 25
    """Steps between files of scored completions in samples/."""
    model: ModelConfig = field(default_factory=ModelConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        at_least(self, seed=0, steps=1, threads=0, probe_tokens=0, save_samples_every=1)


def load_config(path: Path) -> TrainConfig:
    """The configuration in a TOML file, on top of the file that its key `extends` names."""
    return build(TrainConfig, read_recipe(path), str(path))


def read_recipe(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The tables of a recipe, merged over the recipe that it extends."""
    if path in seen:
        raise ConfigError(f"{path}: `extends` leads back to the file itself")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {path}; give the path of a TOML file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; give the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    base = table.pop("extends", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends is {base!r}; give the path of a recipe")
    return merge(read_recipe(path.parent / base, (*seen, path)), table)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, table by table."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = merge(below, value)
        merged[key] = value
    return merged


def build(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """An instance of the dataclass from a table, every key and type checked."""
    hints = typing.get_type_hints(cls)
    for key in table:
        if key not in hints:
            near = difflib.get_close_matches(key, hints, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(hints)}"
            raise ConfigError(f"{where}: unknown key {key!r}; {advice}")
    values = {key: convert(hints[key], value, f"{where}: {key}") for key, value in table.items()}
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type `hint`, or a ConfigError. An integer will do for a float."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} is {value!r}; it is a section: write [{where.split()[-1]}]")
        return build(hint, value, where)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        return convert(members[0], value, where) if len(members) == 1 else value
    if origin is Literal:
        if value not in get_args(hint):
            choices = ", ".join(map(str, get_args(hint)))
            raise ConfigError(f"{where} is {value!r}; choose one of {choices}")
        return value
    if origin is dict:
        hint = dict
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ConfigError(
            f"{where} is {value!r}; it must be of type {getattr(hint, '__name__', hint)}"
        )
    return value


def dump_toml(config: Any) -> str:
    """The configuration as TOML; `load_config` of it gives an equal one. None is left out."""
    scalars, sections = [], []
    for key, value in fields_of(config).items():
        if isinstance(value, dict) or dataclasses.is_dataclass(value):
            sections.append((key, value))
        elif value is not None:
            scalars.append(f"{key} = {toml_value(value)}")
    text = "\n".join(scalars) + "\n"
    for key, section in sections:
        body = dump_toml(section)
        if body.strip():
            lines = [
                f"[{key}.{line[1:]}" if line.startswith("[") else line for line in body.splitlines()
            ]
            text += f"\n[{key}]\n" + "\n".join(lines) + "\n"
    return text


def fields_of(config: Any) -> dict[str, Any]:
    """The fields of a dataclass, or the items of a dict."""
    if isinstance(config, dict):
        return config
    return {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}


def toml_value(value: Scalar) -> str:
    """A scalar in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return repr(value)


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """One line for each setting that differs: `section.key: old -> new`."""
    lines = []
    before, after = fields_of(old), fields_of(new)
    for key in {**before, **after}:
        a, b = before.get(key), after.get(key)
        if dataclasses.is_dataclass(a) or isinstance(a, dict):
            lines += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            lines.append(f"{prefix}{key}: {a!r} -> {b!r}")
    return lines


def at_least(config: Any, **bounds: float) -> None:
    """Raises a ConfigError for a field below its bound."""
    for name, bound in bounds.items():
        value = getattr(config, name)
        if value is not None and not value >= bound:
            raise ConfigError(f"{name} is {value!r}; it must be at least {bound}")


def above(config: Any, **bounds: float) -> None:
    """Raises a ConfigError for a field that is not above its bound."""
    for name, bound in bounds.items():
        value = getattr(config, name)
        if value is not None and not value > bound:
            raise ConfigError(f"{name} is {value!r}; it must be above {bound}")


def fractions(config: Any, *names: str) -> None:
    """Raises a ConfigError for a field outside [0, 1]: fractions are never percent."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value <= 1:
            raise ConfigError(f"{name} is {value!r}; it is a fraction between 0 and 1")
