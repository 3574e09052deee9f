"""Bounds that the settings of a dataclass must keep. Loads no torch."""

from typing import Any

from isentrope.errors import ConfigError

__all__ = ["above", "at_least", "fractions"]


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
