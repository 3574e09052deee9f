"""Which releases of TRL the adapter was tried with."""

from types import ModuleType

from isentrope.errors import ConfigError

__all__ = ["FIRST", "LAST", "check_release"]

FIRST, LAST = (1, 16), (1, 16)


def check_release(trl: ModuleType) -> None:
    """Raises a ConfigError for a release whose trainer the adapter does not know.

    The adapter overrides private methods of GRPOTrainer, so a new release has to be tried first.
    """
    found = tuple(int(part) for part in trl.__version__.split(".")[:2])
    if not FIRST <= found <= LAST:
        first, last = (".".join(map(str, release)) for release in (FIRST, LAST))
        raise ConfigError(
            f"TRL {trl.__version__} is installed; isentrope was tried with TRL {first} to {last}: "
            f"pip install 'trl>={first},<{LAST[0]}.{LAST[1] + 1}'"
        )
