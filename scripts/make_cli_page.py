"""Writes docs/cli.md from the commands' own help.

python scripts/make_cli_page.py
"""

import os
import subprocess
import sys
from pathlib import Path

from isentrope.cli import COMMANDS, help_text

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"


def page() -> str:
    """The text of the page."""
    parts = ["# Command line", "", "Written by `python scripts/make_cli_page.py`.", ""]
    parts += ["```text", help_text(), "```", ""]
    for name, (_, purpose) in COMMANDS.items():
        parts += [
            f"## isentrope {name}",
            "",
            f"{purpose}.",
            "",
            "```text",
            help_of(name),
            "```",
            "",
        ]
    return "\n".join(parts)


def help_of(name: str) -> str:
    """What `isentrope NAME --help` prints, 100 columns wide and without colour."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    result = subprocess.run(
        [sys.executable, "-m", "isentrope.cli", name, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
