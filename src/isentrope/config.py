"""The settings of a training run: one dataclass a section, each field documented once.

A recipe is a TOML file with these sections; the flags of `isentrope train` are derived from the
same classes. Precedence: default, then recipe, then flag. This module loads no torch.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Literal

from isentrope.bounds import above, at_least, below, finite, fractions, ordered
from isentrope.errors import ConfigError
from isentrope.toml_codec import (
    Scalar,
    build,
    differences,
    dump_toml,
    merge,
    nested,
    read_recipe,
    sweep_of,
)

__all__ = [
    "CheckpointConfig",
    "ControlConfig",
    "EvaluationConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "OptimizerConfig",
    "PrimeConfig",
    "RolloutConfig",
    "Scalar",
    "TaskConfig",
    "TrainConfig",
    "VllmConfig",
    "build",
    "differences",
    "dump_toml",
    "load_arms",
    "load_config",
    "recipe_of",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The language model to train."""

    path: str = "builtin:countdown"
    """A Hugging Face id, a folder, a .gguf file, or builtin:NAME."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Type of the weights; auto: as they are stored."""
    compute_dtype: Literal["weights", "bfloat16"] = "weights"
    """Type of matrix products: that of the weights, or bfloat16 over weights in float32 (autocast)."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda where there is one."""
    prompt: Literal["plain", "chat"] = "plain"
    """plain gives the problem as it is, for base models; chat wraps it in the model's template."""
    system: str | None = None
    """System prompt, for chat."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, one more forward pass."""
    lora_rank: int = 0
    """Rank of low-rank adapters (LoRA), which then train in place of the model; 0: none."""
    lora_alpha: int = 32
    """What the adapters add is scaled by lora_alpha / lora_rank."""
    lora_targets: str = "all-linear"
    """The layers with adapters: all-linear, or names with commas between, as q_proj,v_proj."""

    def __post_init__(self) -> None:
        at_least(self, lora_rank=0, lora_alpha=1)
        if self.compute_dtype != "weights" and self.dtype != "float32":
            raise ConfigError(
                f"compute_dtype is {self.compute_dtype!r} and dtype {self.dtype!r}; lower products "
                "are for weights in float32: set model.dtype to 'float32', or leave compute_dtype out"
            )
        if self.compute_dtype != "weights" and self.lora_rank:
            raise ConfigError(
                f"compute_dtype is {self.compute_dtype!r} and lora_rank {self.lora_rank}; "
                "adapters are float32: set dtype to 'bfloat16', and leave compute_dtype out"
            )
        if not self.lora_rank and (self.lora_alpha != 32 or self.lora_targets != "all-linear"):
            raise ConfigError(
                "lora_alpha or lora_targets is set, but lora_rank is 0; set model.lora_rank"
            )
        if self.system is not None and self.prompt != "chat":
            raise ConfigError("system is set, but prompt is 'plain'; set model.prompt to 'chat'")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskConfig:
    """What to train on, and how answers are verified."""

    name: str = "countdown"
    """Name of the task."""
    options: dict[str, Scalar] = field(default_factory=dict)
    """Options of the task itself; its documentation lists them."""
    reward: tuple[str, ...] = ()
    """Reward functions of one's own, file.py:name or package.module:name, called as TRL calls its
    own; left out, the task's verifier judges."""
    reward_weights: tuple[float, ...] = ()
    """Their weights in the sum; left out, 1."""
    reward_timeout_s: float = 60.0
    """Seconds that one call of a reward function may take."""
    reward_fault_limit: float = 0.5
    """Share of completions, of those so far, that reward functions may fail to judge."""
    right_score: float = 1.0
    """Reward from which on a completion is right, in pass@k and PRIME: of reward functions."""

    def __post_init__(self) -> None:
        above(self, reward_timeout_s=0)
        fractions(self, "reward_fault_limit")


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutConfig:
    """Sampling of responses from the policy."""

    sampler: Literal["local", "vllm"] = "local"
    """What samples: the group sampler of this package, or vLLM in the same process ([vllm])."""
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
    max_rounds: int = 1
    """Dynamic sampling: while fewer than `prompts` groups carry signal, further prompts are drawn,
    at most so many times; then the step goes on with what there is. 1: off."""
    overlong_buffer: int = 0
    """Tokens below max_new_tokens over which a length penalty grows (DAPO); 0: none."""
    overlong_penalty: float = 1.0
    """What a response of max_new_tokens loses of its reward, with an overlong_buffer."""

    def __post_init__(self) -> None:
        at_least(self, prompts=1, samples=2, max_new_tokens=1, rows=1, max_rounds=1)
        at_least(self, overlong_buffer=0, overlong_penalty=0)
        above(self, temperature=0.0)
        if self.overlong_buffer > self.max_new_tokens:
            raise ConfigError(
                f"overlong_buffer is {self.overlong_buffer}, more than max_new_tokens = "
                f"{self.max_new_tokens}; it is the last part of the longest response"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveConfig:
    """From rewards to a loss. A knob left out has the default of the chosen loss; one that the
    chosen loss does not use is refused."""

    advantage: str = "grpo"
    """grpo, dr_grpo, rloo, opo, reinforce_pp, reinforce_pp_baseline, pass_at_k, pkpo, w_reinforce
    or prime."""
    advantage_steps: int | None = None
    """Steps after which the advantage is advantage_then; left out, it stays."""
    advantage_then: str | None = None
    """The advantage from step advantage_steps on: grpo after pass_at_k explores first, then exploits."""
    pass_k: int | None = None
    """pass_at_k, pkpo: responses of which the best counts (4); fewer than rollout.samples."""
    success_weight: float | None = None
    """w_reinforce: weight of a reward above 0, beside -1 for the others (0.1)."""
    loss: str = "ppo_clip"
    """policy_gradient, ppo_clip, cispo, gspo, gmpo, clip_cov, kl_cov, top_entropy or budget."""
    reducer: Literal["token_mean", "sequence_mean", "sequence_sum"] = "token_mean"
    """How the losses of tokens become one number; sequence_sum divides by max_new_tokens."""
    clip_low: float | None = None
    """The ratio is clipped below 1 - clip_low (0.2; 3e-4 in gspo; none in cispo, clip_cov and
    kl_cov). GMPO: its logarithm, below -clip_low (0.4)."""
    clip_high: float | None = None
    """The ratio is clipped above 1 + clip_high (0.2; 0.28 in top_entropy and clip-higher; 4e-4 in
    gspo; 4 in cispo; none in clip_cov and kl_cov). GMPO: its logarithm, above clip_high (0.4)."""
    dual_clip: float | None = None
    """For A < 0 the loss is at most dual_clip x |A| (off)."""
    clip_fraction: float | None = None
    """Clip-Cov: fraction of the mini-batch's tokens whose gradient is cut (2e-4). Budget: at most
    so many (1)."""
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
    entropy_fraction: float | None = None
    """Top entropy: fraction of the mini-batch's tokens, those of highest entropy, that keep their
    gradient (0.2)."""
    budget: float | None = None
    """Loss budget, shaping success or decorrelation: mean covariance that may remain, where no
    controller sets it."""
    shaping: Literal[
        "none",
        "entropy",
        "covariance_kernel",
        "quadrants",
        "success",
        "decorrelation",
        "entropic",
        "repo_r",
    ] = "none"
    """Advantages reshaped token by token: by a bonus for entropy; down-weighted by a Gaussian
    kernel at tokens of extreme covariance; by a weight for each of the four parts of the
    covariance; until the budget is met, where those of likely successes are lowered and of unlikely
    ones raised (success), or all decorrelated from log pi (decorrelation); or with a strength, at
    likely tokens (entropic) or by their log pi (repo_r)."""
    strength: float | None = None
    """Shaping entropic or repo_r: its strength, where no controller sets it."""
    likely_probability: float | None = None
    """Shaping entropic: probability above which a token is reshaped (0.9)."""
    shaping_weight: float | None = None
    """Entropy shaping: bonus a nat of entropy (0.4)."""
    shaping_bound: float | None = None
    """Entropy shaping: the bonus is at most |A| / shaping_bound (2)."""
    likely_success: float | None = None
    """Quadrants: weight of A > 0 where log pi is above its mean (1)."""
    unlikely_success: float | None = None
    """Quadrants: weight of A > 0 where log pi is below its mean (1)."""
    likely_mistake: float | None = None
    """Quadrants: weight of A < 0 where log pi is above its mean (1)."""
    unlikely_mistake: float | None = None
    """Quadrants: weight of A < 0 where log pi is below its mean (1)."""
    strength_limit: float | None = None
    """Shaping success and decorrelation: largest strength, a nat of log-prob (5)."""
    covariance_policy: Literal["behaviour", "current"] = "behaviour"
    """Log-probabilities in the covariance: of the policy that sampled (no cost), or of the policy
    at the start of each mini-batch (one more forward pass). With vLLM or an importance_cap the
    former are those of the trainer's forward pass, not the sampler's."""
    selection: Literal["mini_batch", "micro_batch"] = "mini_batch"
    """Tokens are selected over the whole mini-batch, or, to compare with other software, in each
    micro-batch."""
    entropy_coefficient: float = 0.0
    """Weight of an entropy bonus in the loss."""
    reference_kl_coefficient: float = 0.0
    """Weight of KL(policy || start policy)."""
    reference_kl_place: Literal["loss", "reward"] = "loss"
    """In the loss, or subtracted from the reward: token by token in reinforce_pp, as a sum over
    the response elsewhere."""
    reference_kl_estimator: Literal["k2", "k3"] = "k3"
    """Estimator of that KL in the loss, where k1 would have no gradient; in the reward it is k1."""
    drop_zero_signal: bool = True
    """Leave out groups whose rewards are all equal."""
    importance_cap: float | None = None
    """Each token's loss times min(trainer's / sampler's probability, importance_cap), for a sampler
    that differs from the trainer; ratios then start from the trainer's log-probs. None: off."""

    def __post_init__(self) -> None:
        at_least(self, clip_low=0, clip_high=0, dual_clip=1, kl_coefficient=0)
        at_least(self, reference_kl_coefficient=0, shaping_weight=0, pass_k=2, success_weight=0)
        fractions(self, "likely_probability")
        at_least(self, advantage_steps=1)
        at_least(self, likely_success=0, unlikely_success=0, likely_mistake=0, unlikely_mistake=0)
        above(self, shaping_bound=0, importance_cap=0, strength_limit=0)
        fractions(self, "clip_fraction", "kl_fraction", "entropy_fraction")
        ordered(self, "covariance_low", "covariance_high")


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlConfig:
    """An entropy controller: before each step it looks at the entropy of the policy."""

    name: str = "none"
    """none, or adaptive: a bonus that grows below the target (Skywork-OR1); band: a bonus or penalty
    that moves outside target +- width; budget: the isentropic budget of loss `budget` (tokens are cut)
    or of shaping `success` or `decorrelation`; pi, doubling: the strength of shaping `entropic` or
    `repo_r` (EntroPIC, REPO)."""
    measure: Literal["token_mean", "sequence_mean"] = "token_mean"
    """The entropy looked at: mean over tokens, or over responses of the mean over their tokens."""
    target: float | None = None
    """Entropy to hold, in nats; left out, the entropy before the first step."""
    target_end: float | None = None
    """The target falls (or rises) to this; left out, it is held."""
    target_hold: int = 0
    """Steps for which the target is held before it moves to target_end."""
    target_steps: int | None = None
    """Steps from there to target_end; left out, the rest of the run."""
    target_shape: Literal["linear", "cosine"] = "linear"
    """The target's course on the way to target_end."""
    target_relative: bool = False
    """target and target_end are shares of the entropy before the first step, not nats."""
    delta: float = 0.005
    """adaptive, band: change of the bonus's coefficient in a step."""
    coefficient_low: float | None = None
    """adaptive, band: smallest coefficient (0 and -1)."""
    coefficient_high: float = 1.0
    """adaptive, band: largest coefficient."""
    width: float = 0.05
    """band: half its width, in nats."""
    gain: float = 1.0
    """budget: mean covariance that may remain, for each nat above the target; pi: strength."""
    integral_gain: float = 0.0
    """budget, pi: what each step adds to it, for each nat above the target in that step."""
    integral_limit: float = 0.1
    """budget: largest size of the part that the steps have added."""
    strength_start: float = 1e-3
    """doubling: strength in the first step."""
    strength_low: float = 1e-4
    """doubling: smallest size of the strength, at which it turns its sign."""
    strength_high: float = 0.05
    """doubling: largest size of the strength."""

    def __post_init__(self) -> None:
        at_least(self, target=0, target_end=0, target_hold=0, target_steps=1)
        at_least(self, delta=0, width=0, gain=0, integral_gain=0, integral_limit=0)
        above(self, strength_low=0)
        ordered(self, "strength_low", "strength_high")
        ordered(self, "coefficient_low", "coefficient_high")

    def steps_to_end(self, steps: int) -> int:
        """Steps that the target takes from its hold to its end, in a run of so many steps."""
        return self.target_steps or max(1, steps - self.target_hold)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimeConfig:
    """The implicit process reward model of advantage `prime`."""

    beta: float = 0.05
    """Reward of a token: beta x log(model / start policy)."""
    learning_rate: float = 1e-6
    """Learning rate of the reward model's own AdamW."""
    mini_batches: int = 1
    """Its updates in a step."""
    gradient_clip: float = 10.0
    """Largest norm of its gradient."""
    accuracy_low: float = 0.2
    """Prompts with a lower accuracy than this are left out."""
    accuracy_high: float = 0.8
    """Prompts with a higher accuracy than this are left out."""

    def __post_init__(self) -> None:
        above(self, beta=0, learning_rate=0, gradient_clip=0)
        at_least(self, mini_batches=1)
        fractions(self, "accuracy_low", "accuracy_high")
        ordered(self, "accuracy_low", "accuracy_high")


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """AdamW, and how a rollout is divided into updates."""

    name: Literal["adamw", "adamw_8bit"] = "adamw"
    """adamw_8bit keeps AdamW's running means in 8 bits, with bitsandbytes: less memory."""
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
        below(self, beta1=1, beta2=1)


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
    top_p: float = 1.0
    """Sample from the fewest tokens whose probabilities add up to this; 1: from all."""
    top_k: int = 0
    """Sample from so many of the likeliest tokens; 0: from all."""
    min_p: float = 0.0
    """Sample from tokens at least this fraction as likely as the likeliest; 0: from all."""

    def __post_init__(self) -> None:
        at_least(self, every=1, problems=1, samples=1, top_k=0)
        above(self, temperature=0.0, top_p=0.0)
        fractions(self, "top_p", "min_p")


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmConfig:
    """The engine of `rollout.sampler` vllm; its weights have the type of `model.dtype`."""

    gpu_memory_utilization: float = 0.3
    """Fraction of the device's memory for its weights and cache; training needs the rest."""
    max_model_len: int | None = None
    """Longest prompt with its response, in tokens; left out, the model's own limit."""
    enforce_eager: bool = False
    """Neither compile nor capture: slower, and it starts sooner."""

    def __post_init__(self) -> None:
        at_least(self, max_model_len=2)
        above(self, gpu_memory_utilization=0)
        fractions(self, "gpu_memory_utilization")


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
    tracker: Literal["none", "tensorboard", "wandb", "trackio"] = "none"
    """Where the lines of the log go beside the run folder."""
    model: ModelConfig = field(default_factory=ModelConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    control: ControlConfig = field(default_factory=ControlConfig)
    prime: PrimeConfig = field(default_factory=PrimeConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    vllm: VllmConfig = field(default_factory=VllmConfig)

    def __post_init__(self) -> None:
        for name in ("rollout", "objective", "control", "prime", "optimizer", "evaluation"):
            finite(getattr(self, name))
        at_least(self, seed=0, steps=1, threads=0, probe_tokens=0, save_samples_every=1)


def load_config(path: Path) -> TrainConfig:
    """The configuration in a TOML file, on top of the file that its key `extends` names."""
    arms = load_arms(path)
    if len(arms) > 1:
        raise ConfigError(
            f"{path} has a [sweep] of {len(arms)} arms; run them all with `isentrope compare {path}`"
        )
    return arms[0]


def recipe_of(recipe: "str | Path | TrainConfig", settings: Mapping[str, object]) -> TrainConfig:
    """A recipe with `settings` over its own: {"steps": 20, "objective": {"loss": "kl_cov"}}."""
    if isinstance(recipe, TrainConfig):
        table, where = tomllib.loads(dump_toml(recipe)), "the recipe"
    else:
        load_config(Path(recipe))  # what is wrong with the file itself is said of the file
        table, where = read_recipe(Path(recipe)), str(recipe)
    return build(TrainConfig, merge(table, settings), f"{where} with settings")


def load_arms(path: Path) -> list[TrainConfig]:
    """The configurations of a recipe: one for each combination of the values in its [sweep].

        [sweep]
        "control.target_end" = [0.05, 0.1]

    The name of an arm is the recipe's with what it has of the sweep: "success,target_end=0.05".
    """
    table = read_recipe(path)
    swept = sweep_of(table.pop("sweep", {}), str(path))
    refuse_filters(table.get("rollout"), str(path))
    last = [key.rpartition(".")[2] for key in swept]
    labels = [key if last.count(end) > 1 else end for key, end in zip(swept, last, strict=True)]
    arms = []
    for values in product(*swept.values()):
        arm = table
        for key, value in zip(swept, values, strict=True):
            arm = merge(arm, nested(key, value))
        config = build(TrainConfig, arm, str(path))
        parts = [f"{label}={value}" for label, value in zip(labels, values, strict=True)]
        arms.append(replace(config, name=",".join([config.name, *parts])))
    return arms


def refuse_filters(rollout: object, where: str) -> None:
    """Raises a ConfigError for a nucleus in training, which says why there is none."""
    for name in ("top_p", "top_k", "min_p"):
        if isinstance(rollout, Mapping) and name in rollout:
            raise ConfigError(
                f"{where}: rollout.{name} is {rollout[name]!r}; training samples from the whole "
                "distribution, because the tokens that a filter leaves out have no samples, so no "
                "importance weight makes up for them, and the ratio of the policy to what sampled "
                f"would be biased; leave it out. evaluation.{name} exists"
            )
