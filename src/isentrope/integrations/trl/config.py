"""GRPOConfig with the settings of the entropy control, and what of them does not fit together."""

import logging
from dataclasses import dataclass, field

from isentrope.config import ControlConfig, ObjectiveConfig
from isentrope.control.combination import tracking_controller
from isentrope.control.controllers import BUDGET_SETTINGS
from isentrope.errors import ConfigError, require
from isentrope.integrations.refusal import check_release
from isentrope.integrations.selection import ACTS, Select, remarks, selector
from isentrope.integrations.trl.control import BudgetController

__all__ = ["NO_CLIP", "EntropyGRPOConfig", "selection"]

trl = require("trl", "trl")
check_release("TRL", trl.__version__, "1.16")

logger = logging.getLogger(__name__)

CONTROLS = {
    "none": "ppo_clip",
    "clip_cov": "clip_cov",
    "kl_cov": "kl_cov",
    "budget": "budget",
    "success": "ppo_clip",
    "decorrelation": "ppo_clip",
}
"""Name of each control, and the loss of isentrope.objective whose selection it uses."""

CLIPPED = ("none", *ACTS)
"""Controls beside which the PPO clip stays."""

CLIP = 0.2
"""TRL's own default of `epsilon`."""

TARGET_OF_TRL = 0.2
"""TRL's own default of `entropy_target`, which means something else in the budget."""

NO_CLIP = 1e9
"""A clip range that no ratio reaches; infinity would not survive every tracker's JSON."""

TOKEN_LOSSES = ("dapo", "bnpo", "cispo")
"""Loss types that average over tokens, in which rows without tokens weigh nothing."""

REDUCIBLE = (*TOKEN_LOSSES, "grpo", "dr_grpo")
"""Loss types in which a penalty is a term of each token."""


@dataclass
class EntropyGRPOConfig(trl.GRPOConfig):
    """GRPOConfig, and the settings of the entropy control. A knob left out has its default; one
    that the chosen control does not use is refused."""

    entropy_control: str = field(
        default="none",
        metadata={
            "help": "none, clip_cov, kl_cov (arXiv 2505.22617), or the isentropic budget met by "
            "cutting (budget), by success or by decorrelation"
        },
    )
    clip_fraction: float | None = field(
        default=None, metadata={"help": "Clip-Cov: fraction of tokens whose gradient is cut (2e-4)"}
    )
    covariance_low: float | None = field(
        default=None, metadata={"help": "Clip-Cov: lower bound of the covariance (1)"}
    )
    covariance_high: float | None = field(
        default=None, metadata={"help": "Clip-Cov: upper bound of the covariance (5)"}
    )
    kl_fraction: float | None = field(
        default=None, metadata={"help": "KL-Cov: fraction of tokens that are penalised (2e-3)"}
    )
    kl_coefficient: float | None = field(
        default=None, metadata={"help": "KL-Cov: weight of the penalty (1)"}
    )
    kl_estimator: str | None = field(
        default=None, metadata={"help": "KL-Cov: abs (the paper's code), k1, k2 or k3"}
    )
    entropy_target: float | None = field(
        default=None,
        metadata={
            "help": "Budget: entropy to hold, in nats (that of the first rollout); with TRL's "
            "use_adaptive_entropy, TRL's target (0.2)"
        },
    )
    entropy_target_end: float | None = field(
        default=None, metadata={"help": "Budget: the target moves linearly to this (it is held)"}
    )
    entropy_target_steps: int | None = field(
        default=None, metadata={"help": "Budget: rollouts from the hold until entropy_target_end"}
    )
    entropy_target_hold: int | None = field(
        default=None, metadata={"help": "Budget: rollouts before the target begins to move (0)"}
    )
    entropy_target_shape: str | None = field(
        default=None, metadata={"help": "Budget: the target moves linear (default) or cosine"}
    )
    entropy_target_relative: bool | None = field(
        default=None,
        metadata={"help": "Budget: targets are shares of the first rollout's entropy (False)"},
    )
    entropy_measure: str | None = field(
        default=None, metadata={"help": "Budget: token_mean (default) or sequence_mean"}
    )
    entropy_gain: float | None = field(
        default=None,
        metadata={"help": "Budget: mean covariance that may remain, a nat above the target (1)"},
    )
    entropy_integral_gain: float | None = field(
        default=None, metadata={"help": "Budget: what each rollout adds to it, a nat above (0)"}
    )
    entropy_integral_limit: float | None = field(
        default=None, metadata={"help": "Budget: largest size of what rollouts have added (0.1)"}
    )
    covariance_policy: str = field(
        default="behaviour",
        metadata={
            "help": "Log-probabilities in the covariance: behaviour (old_per_token_logps: no cost "
            "where TRL has them) or current (one no-grad forward an update)"
        },
    )
    covariance_metrics: bool = field(
        default=False,
        metadata={"help": "Log the covariance without a control too; with one it always is"},
    )
    drop_zero_signal: bool = field(
        default=False,
        metadata={"help": "Leave out responses of advantage 0: groups whose rewards are all equal"},
    )
    probe_tokens: int = field(
        default=0,
        metadata={
            "help": "Tokens a rank on which the entropy change of each update is predicted and "
            "measured; 0 turns it off"
        },
    )
    epsilon: float | None = field(
        default=None,
        metadata={
            "help": "PPO clip range: 0.2, or off with clip_cov and kl_cov, as in the paper, unless "
            "epsilon_high is given or loss_type is cispo"
        },
    )

    def __post_init__(self) -> None:
        if self.epsilon is None:
            wanted = self.epsilon_high is not None or self.loss_type == "cispo"
            self.epsilon = CLIP if wanted or self.entropy_control in CLIPPED else NO_CLIP
        if self.use_adaptive_entropy and self.entropy_target is None:
            self.entropy_target = TARGET_OF_TRL
        super().__post_init__()
        check_control(self)

    @property
    def knobs(self) -> dict[str, float | None]:
        """The settings of the selection."""
        names = ("clip_fraction", "covariance_low", "covariance_high", "kl_fraction")
        return {name: getattr(self, name) for name in names}

    def controller(self) -> BudgetController | None:
        """The controller of the budget; None without one."""
        if self.entropy_control not in ACTS:
            return None
        given = {name: getattr(self, f"entropy_{name}") for name in BUDGET_SETTINGS}
        control = ControlConfig(
            name="budget", **{name: value for name, value in given.items() if value is not None}
        )
        return BudgetController(tracking_controller(control, 1), control.measure)

    @property
    def measures(self) -> bool:
        """Whether the covariance is computed at all."""
        return self.entropy_control != "none" or self.covariance_metrics


def check_control(args: EntropyGRPOConfig) -> None:
    """Raises a ConfigError for settings that do not fit together."""
    if args.entropy_control not in CONTROLS:
        raise ConfigError(
            f"entropy_control is {args.entropy_control!r}; choose one of {', '.join(CONTROLS)}"
        )
    check_budget(args)
    selection(args, 0.0)
    ObjectiveConfig(kl_coefficient=args.kl_coefficient)  # refuses a negative one
    for remark in remarks({**args.knobs}):
        logger.warning(remark)
    for name in ("kl_coefficient", "kl_estimator"):
        if getattr(args, name) is not None and args.entropy_control != "kl_cov":
            raise ConfigError(
                f"{name} is {getattr(args, name)!r}, but {args.entropy_control} does not use it"
            )
    if args.kl_estimator not in (None, "abs", "k1", "k2", "k3"):
        raise ConfigError(f"kl_estimator is {args.kl_estimator!r}; choose abs, k1, k2 or k3")
    if args.covariance_policy not in ("behaviour", "current"):
        raise ConfigError(
            f"covariance_policy is {args.covariance_policy!r}; choose behaviour or current"
        )
    if args.entropy_control == "kl_cov" and args.loss_type not in REDUCIBLE:
        raise ConfigError(
            f"loss_type is {args.loss_type!r}; KL-Cov needs one of {', '.join(REDUCIBLE)}"
        )
    if args.drop_zero_signal and args.loss_type not in TOKEN_LOSSES:
        raise ConfigError(
            f"drop_zero_signal needs a loss_type that averages over tokens "
            f"({', '.join(TOKEN_LOSSES)}), not {args.loss_type!r}"
        )
    if args.entropy_control != "none" and args.importance_sampling_level != "token":
        raise ConfigError(
            "importance_sampling_level is 'sequence': a token's gradient cannot be cut in a ratio "
            "that belongs to the whole sequence; set it to 'token'"
        )
    check_window(args)


def check_budget(args: EntropyGRPOConfig) -> None:
    """Raises a ConfigError for settings of the budget that are wrong, or have no budget."""
    if args.use_adaptive_entropy and args.entropy_control in ACTS:
        raise ConfigError(
            f"use_adaptive_entropy and entropy_control {args.entropy_control!r} would both steer "
            "the entropy to entropy_target; leave one out"
        )
    of_trl = ("target",) if args.use_adaptive_entropy else ()
    given = [
        name
        for name in BUDGET_SETTINGS
        if getattr(args, f"entropy_{name}") is not None and name not in of_trl
    ]
    if given and args.entropy_control not in ACTS:
        name = f"entropy_{given[0]}"
        raise ConfigError(
            f"{name} is {getattr(args, name)!r}, but entropy_control {args.entropy_control!r} does "
            f"not use it; set entropy_control to one of {', '.join(ACTS)}, or leave it out"
        )
    if args.entropy_measure not in (None, "token_mean", "sequence_mean"):
        raise ConfigError(
            f"entropy_measure is {args.entropy_measure!r}; choose token_mean or sequence_mean"
        )
    if args.entropy_target_shape not in (None, "linear", "cosine"):
        raise ConfigError(
            f"entropy_target_shape is {args.entropy_target_shape!r}; choose linear or cosine"
        )
    if (args.entropy_target_end is None) != (args.entropy_target_steps is None):
        raise ConfigError(
            f"entropy_target_end is {args.entropy_target_end} and entropy_target_steps "
            f"{args.entropy_target_steps}; give both, or neither"
        )
    args.controller()  # a gain below 0, say, is refused here


def selection(args: EntropyGRPOConfig, budget: float) -> Select | None:
    """How the control selects tokens; the budget matters to the control of that name."""
    of_budget = {"budget": budget} if args.entropy_control == "budget" else {}
    return selector(CONTROLS[args.entropy_control], {**args.knobs, **of_budget})


def check_window(args: EntropyGRPOConfig) -> None:
    """Raises a ConfigError where an update spans more than one generation."""
    generated, accumulated = args.steps_per_generation, args.gradient_accumulation_steps
    if args.measures and generated % accumulated:
        raise ConfigError(
            f"steps_per_generation is {generated}, which is no multiple of "
            f"gradient_accumulation_steps ({accumulated}): an update would span two generations, "
            "and its tokens would not be known when it begins"
        )
    on_policy = generated == accumulated and args.num_iterations == 1
    if args.entropy_control == "kl_cov" and on_policy and args.kl_estimator != "k1":
        logger.warning(
            "KL-Cov does nothing while the policy that trains is the one that sampled: with one "
            "update a generation the penalty and its gradient are zero. Set steps_per_generation "
            "to a multiple of gradient_accumulation_steps, or num_iterations above 1."
        )
