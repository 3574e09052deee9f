"""Reading and fitting need numpy only."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    ["isentrope.law.fit", "isentrope.law.ladder", "isentrope.law.study", "isentrope.runs"],
)
def test_nothing_heavy_is_loaded(module: str) -> None:
    heavy = ("torch", "transformers", "matplotlib", "wandb", "tensorboard", "scipy", "pandas")
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
