"""Measure, predict and control policy entropy in reinforcement learning of language models."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isentrope.api import compare, fit, load_run, probe, train, write_report

__all__ = ["__version__", "compare", "fit", "load_run", "probe", "train", "write_report"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The functions of `isentrope.api`, loaded at their first use."""
    if name in __all__:
        from isentrope import api

        return getattr(api, name)
    raise AttributeError(f"module 'isentrope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
