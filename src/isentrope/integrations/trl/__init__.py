"""Entropy control in TRL. The names are loaded at their first use: recipes are read without TRL."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isentrope.integrations.trl.config import EntropyGRPOConfig
    from isentrope.integrations.trl.law import LawCallback
    from isentrope.integrations.trl.trainer import EntropyGRPOTrainer

__all__ = ["EntropyGRPOConfig", "EntropyGRPOTrainer", "LawCallback"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from isentrope.integrations.trl import trainer

    return getattr(trainer, name)
