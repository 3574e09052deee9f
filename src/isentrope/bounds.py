"""Bounds that the settings of a dataclass must keep. Loads no torch."""

import math
from dataclasses import fields
from typing import Any

from isentrope.errors import ConfigError

__all__ = ["above", "at_least", "below", "finite", "fractions", "ordered"]

UNBOUNDED = ("clip_low", "clip_high", "dual_clip", "importance_cap", "covariance_high")
"""Limits, of which infinity is none."""


def finite(config: Any) -> None:
    """Raises a ConfigError for a field that is NaN, or infinite where that is no limit."""
    for item in fields(config):
        value = getattr(config, item.name)
        limit = item.name in UNBOUNDED and value == math.inf
        if isinstance(value, float) and not math.isfinite(value) and not limit:
            raise ConfigError(f"{item.name} is {value!r}; it must be a finite number")


def ordered(config: Any, low: str, high: str) -> None:
    """Raises a ConfigError where a lower bound is above the upper one."""
    least, most = getattr(config, low), getattr(config, high)
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"{low} is {least!r} and {high} {most!r}; the lower bound is above the upper"
        )


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


def below(config: Any, **bounds: float) -> None:
    """Raises a ConfigError for a field that is not below its bound."""
    for name, bound in bounds.items():
        value = getattr(config, name)
        if value is not None and not value < bound:
            raise ConfigError(f"{name} is {value!r}; it must be below {bound}")


def fractions(config: Any, *names: str) -> None:
    """Raises a ConfigError for a field outside [0, 1]: fractions are never percent."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value <= 1:
            raise ConfigError(f"{name} is {value!r}; it is a fraction between 0 and 1")
