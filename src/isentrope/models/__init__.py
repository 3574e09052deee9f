"""Language models that ship inside the package."""

from pathlib import Path

from isentrope.errors import ConfigError

__all__ = ["BUILTIN", "builtin_path"]

BUILTIN = ("countdown",)
"""The names that may follow `builtin:`."""


def builtin_path(name: str) -> Path:
    """The folder of a built-in model, in Hugging Face format, or a ConfigError."""
    if name not in BUILTIN:
        raise ConfigError(
            f"no built-in model is named {name!r}; use one of:"
            f" {', '.join(f'builtin:{known}' for known in BUILTIN)}"
        )
    return Path(__file__).parent / name
