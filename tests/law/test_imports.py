"""Reading and fitting need numpy only."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import isentrope


@pytest.mark.parametrize(
    "module",
    ["isentrope.law.fit", "isentrope.law.ladder", "isentrope.law.study", "isentrope.runs"],
)
def test_nothing_heavy_is_loaded(module: str) -> None:
    heavy = ("torch", "transformers", "matplotlib", "wandb", "tensorboard", "scipy", "pandas")
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    source = str(Path(isentrope.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.stdout.strip() == "[]"
