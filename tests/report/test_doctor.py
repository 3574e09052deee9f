import pytest

from isentrope.commands import doctor
from isentrope.commands.doctor import GIB, Row, disk_row, memory_row, next_command, requirement_rows

REQUIREMENTS = [
    "numpy>=1.26",
    "torch>=2.6",
    "matplotlib>=3.8; extra == 'report'",
    "trl>=1.0; extra == 'trl'",
    "datasets>=3; extra == 'trl'",
]
INSTALLED = {"numpy": "2.4.6", "torch": "2.5.0", "matplotlib": "3.11.2", "datasets": "4.0.0"}


def test_requirements_and_extras() -> None:
    rows = {
        row.what: row for row in requirement_rows(REQUIREMENTS, ["report", "trl"], INSTALLED.get)
    }
    assert rows["numpy"] == Row("numpy", "ok", "2.4.6")
    assert rows["torch"] == Row("torch", "warning", "2.5.0", "run: pip install 'torch>=2.6'")
    assert rows["extra report"] == Row("extra report", "ok", "matplotlib 3.11.2")
    assert rows["extra trl"] == Row(
        "extra trl",
        "missing",
        "trl not installed, datasets 4.0.0",
        "run: pip install 'isentrope[trl]'",
    )


def test_a_checkout_that_is_not_installed_is_a_warning() -> None:
    (row,) = requirement_rows([], [], INSTALLED.get)
    assert (row.what, row.state) == ("isentrope", "warning")


def test_little_disk_and_memory_are_warnings() -> None:
    assert disk_row(4 * GIB).state == "warning"
    assert disk_row(50 * GIB).state == "ok"
    assert memory_row(GIB).state == "warning"
    assert memory_row(8 * GIB).found == "8.0 GiB available"
    assert memory_row(None).state == "ok"


def test_what_is_broken_comes_next_and_extras_do_not_count() -> None:
    extra = Row("extra trl", "missing", "", "run: pip install 'isentrope[trl]'")
    assert next_command([extra]) == "isentrope train countdown"
    torch = Row("torch", "missing", "", "run: pip install 'torch>=2.6'")
    assert next_command([extra, torch]) == "pip install 'torch>=2.6'"


def test_command_prints_every_row_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.run(doctor.Options()) == 0
    out = capsys.readouterr().out
    for name in ("python", "device", "threads", "memory", "disk", "builtin:countdown", "next:"):
        assert name in out
