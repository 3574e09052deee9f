"""Options of the verl plug-in, from one environment variable."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

from isentrope.bounds import fractions
from isentrope.config import ControlConfig, build
from isentrope.control.combination import check_settings, tracking_controller
from isentrope.control.controllers import Tracking
from isentrope.errors import ConfigError

__all__ = ["VARIABLE", "PluginOptions", "plugin_options", "read_options"]

VARIABLE = "ISENTROPE_VERL"


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginOptions:
    """What verl's frozen configuration has no place for.

    ISENTROPE_VERL is the path of a TOML file, or `name = value` pairs with semicolons between:
    ISENTROPE_VERL='seed = 3; kl_estimator = "k3"'.
    """

    selection: Literal["mini_batch", "micro_batch"] = "mini_batch"
    """Over the whole mini-batch of all ranks, or in each micro-batch as verl's own losses."""
    kl_estimator: Literal["abs", "k1", "k2", "k3"] = "abs"
    """KL-Cov: estimator of the penalty."""
    seed: int = 0
    """Seed of Clip-Cov's draw."""
    clip_fraction: float = 1.0
    """Isentropic budget: largest fraction of the tokens whose gradient is cut."""
    control: ControlConfig = field(default_factory=ControlConfig)
    """Isentropic budget: control.target, control.gain and so on, as in a recipe."""

    def __post_init__(self) -> None:
        fractions(self, "clip_fraction")
        if self.control.name not in ("none", "budget"):
            raise ConfigError(
                f"control.name is {self.control.name!r}; verl has the controller of the budget alone"
            )
        if self.control.target_end is not None and self.control.target_steps is None:
            raise ConfigError(
                f"control.target_end is {self.control.target_end} without control.target_steps, the "
                "rollouts until then; give both"
            )

    def controller(self) -> Tracking:
        """The controller of the budget, before the first rollout."""
        if self.selection != "mini_batch":
            raise ConfigError(
                f"selection is {self.selection!r}, but the isentropic budget is of the mini-batch; "
                "leave it out"
            )
        control = replace(self.control, name="budget")
        check_settings(control)
        return tracking_controller(control, 1)


@cache
def plugin_options() -> PluginOptions:
    """The options of this process."""
    return read_options(os.environ)


def read_options(environment: Mapping[str, str]) -> PluginOptions:
    """The options in the variable, or a ConfigError."""
    text = environment.get(VARIABLE, "").strip()
    if text.endswith(".toml"):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{VARIABLE} is {text!r}: {error.strerror}") from None
    else:
        text = text.replace(";", "\n")
    try:
        return build(PluginOptions, tomllib.loads(text), VARIABLE)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{VARIABLE} is no TOML ({error}); write name = value pairs with semicolons between, "
            'text in double quotes: seed = 3; selection = "mini_batch"'
        ) from None
