"""What an engine cannot do, said by name before anything is loaded."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from isentrope.config import TrainConfig
from isentrope.errors import ConfigError

__all__ = ["check_release", "refuse"]

LOCAL = ("model.lora_rank", "model.lora_alpha", "model.lora_targets", "optimizer.name")
"""Settings that the local engine alone has, in sections that all engines have."""


def refuse(
    engine: str,
    config: TrainConfig,
    translated: Collection[str],
    reasons: Iterable[tuple[bool, str]],
) -> None:
    """Raises a ConfigError with every reason that applies.

    A setting that is neither translated nor left at its default is a reason of its own, so that
    none is ever ignored. `translated` holds section.key, or the name of a whole section.
    """
    found = [reason for applies, reason in reasons if applies]
    for name, value, default in settings_of(config):
        section = name.partition(".")[0]
        known = name not in LOCAL and (name in translated or section in translated)
        if value != default and not known:
            found.append(f"{name} is {value!r}; this engine does not have it")
    if found:
        raise ConfigError(f"engine {engine!r} cannot run this recipe:\n  " + "\n  ".join(found))


def settings_of(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(section.key, value, default) of every setting."""
    defaults = type(config)()
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            yield from settings_of(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, value, getattr(defaults, item.name)


def check_release(package: str, installed: str, tried: str) -> None:
    """Raises a ConfigError for a release of a package that is none of the series `tried` ("1.16").

    The adapters override private methods of their hosts, so another release has to be tried first.
    """
    series = tried.split(".")
    if installed.split(".")[: len(series)] != series:
        following = ".".join([*series[:-1], str(int(series[-1]) + 1)])
        raise ConfigError(
            f"{package} {installed} is installed; isentrope was tried with {package} {tried}: "
            f"pip install '{package.lower()}>={tried},<{following}'"
        )
