import subprocess
import sys

import pytest

from isentrope.cli import COMMANDS, main


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)


def test_an_unknown_command_is_named_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "'trian'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "module", ["isentrope", "isentrope.cli", "isentrope.law", "isentrope.runs"]
)
def test_light_modules_load_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
