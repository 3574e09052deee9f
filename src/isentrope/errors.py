"""The errors that isentrope raises for its users.

    IsentropeError
    |- ConfigError(ValueError)            a setting is wrong
    |- DataError(ValueError)              a file or a row is wrong
    `- MissingExtraError(ImportError)     an optional dependency is not installed

A message says what is wrong, the value seen, and what to do. The command line prints it
and exits with code 2; a bug in isentrope itself is an `assert` and keeps its traceback.
"""

import importlib
from types import ModuleType

__all__ = ["ConfigError", "DataError", "IsentropeError", "MissingExtraError", "require"]


class IsentropeError(Exception):
    """Any error that a user can act on."""


class ConfigError(IsentropeError, ValueError):
    """A setting that cannot be used: unknown, of the wrong type, out of range, contradictory."""


class DataError(IsentropeError, ValueError):
    """A file, a log or a row that cannot be used."""


class MissingExtraError(IsentropeError, ImportError):
    """An optional dependency that is not installed."""


def require(module: str, extra: str) -> ModuleType:
    """The imported `module`, or a MissingExtraError naming the line that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != package:
            raise  # installed, but broken inside: the original error says more
        raise MissingExtraError(
            f"{package} is not installed; run: pip install 'isentrope[{extra}]'"
        ) from error
