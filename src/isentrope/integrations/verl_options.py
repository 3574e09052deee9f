"""Options of the verl plug-in, from one environment variable."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from isentrope.config import build
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
