"""Shape annotations of the pure modules are checked at run time in tests only."""

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

install_import_hook("isentrope.objective", "beartype.beartype")


@pytest.fixture
def shared() -> Path:
    """The folder of public logs and data beside the checkout; tests that need it skip without."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("no ../shared folder")
    return folder
