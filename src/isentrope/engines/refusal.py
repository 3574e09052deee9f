"""What an engine cannot do, said by name before anything is loaded."""

from collections.abc import Iterable

from isentrope.errors import ConfigError

__all__ = ["refuse"]


def refuse(engine: str, reasons: Iterable[tuple[bool, str]]) -> None:
    """Raises a ConfigError with every reason that applies."""
    found = [reason for applies, reason in reasons if applies]
    if found:
        raise ConfigError(f"engine {engine!r} cannot run this recipe:\n  " + "\n  ".join(found))
