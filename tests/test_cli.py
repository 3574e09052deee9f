import json
import subprocess
import sys
from pathlib import Path

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


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    # `isentrope fit LOG --json | head -c 1` on an output larger than a pipe holds.
    log = tmp_path / "metrics.jsonl"
    rows = [{"step": i, "entropy": 1 / (i + 1), "reward": i / 99} for i in range(99)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "isentrope.cli", "fit", *[str(log)] * 200, "--json"]
    columns = ["--entropy", "entropy", "--reward", "reward"]
    with subprocess.Popen(
        [*command, *columns], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"["
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
