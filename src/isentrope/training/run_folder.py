"""The folder of a run: everything that a report shows is in its files.

    config.toml         the resolved configuration
    environment.json    versions, hardware, command
    metrics.jsonl       one object a step
    evaluations.jsonl   one object an evaluation
    samples/            scored completions
    checkpoints/        what the run can be resumed from
    tracker_id, ...     what a tracker keeps there

Lines are appended whole: a run that is killed, or meets a full disk, leaves no torn line behind
that a resumed run would not remove.
"""

import contextlib
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import torch

from isentrope.config import TrainConfig, differences, dump_toml, load_config
from isentrope.errors import ConfigError
from isentrope.training.tracker import Tracking

__all__ = ["RunFolder"]

Row = Mapping[str, object]

PACKAGES = ("isentrope", "torch", "transformers", "numpy")


class RunFolder:
    """Writes the files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tracking: Tracking | None = None

    @classmethod
    def open(cls, path: Path, config: TrainConfig, *, resume: bool) -> "RunFolder":
        """The folder, checked and not yet written to.

        A new run must not find a run there; a resumed one must, with the same configuration.
        """
        if not resume:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise ConfigError(
                    f"the run folder {path} exists and is not empty; continue it with --resume, "
                    "or choose another with --out"
                )
            return cls(path)
        if not (path / "config.toml").is_file():
            raise ConfigError(f"{path} holds no run to resume; start it without --resume")
        changed = differences(load_config(path / "config.toml"), config)
        if changed:
            raise ConfigError(
                f"{path} was started with another configuration:\n  "
                + "\n  ".join(changed)
                + f"\nresume it with its own (isentrope train {path / 'config.toml'} --out {path} "
                "--resume), or start a new run with --out"
            )
        return cls(path)

    def begin(self, config: TrainConfig, step: int, tracking: Tracking | None = None) -> None:
        """Makes the folder, and a tracker, ready for the lines of this step and later ones."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        (self.path / "samples").mkdir(exist_ok=True)
        write_whole(self.path / "config.toml", dump_toml(config))
        write_whole(self.path / "environment.json", json.dumps(environment(), indent=2) + "\n")
        for name in ("metrics.jsonl", "evaluations.jsonl"):
            file = self.path / name
            if file.exists():
                keep_lines(file, lambda row: row["step"] < step)
        if tracking:
            tracking.start(self.path, step)
            self.tracking = tracking

    def logged_steps(self) -> list[dict[str, float | None]]:
        """The lines of metrics.jsonl."""
        file = self.path / "metrics.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.path / "checkpoints"

    def log_step(self, row: Row) -> None:
        """Appends one line to metrics.jsonl."""
        append_line(self.path / "metrics.jsonl", row)
        if self.tracking:
            self.tracking.step(row)

    def log_evaluation(self, row: Row) -> None:
        """Appends one line to evaluations.jsonl."""
        append_line(self.path / "evaluations.jsonl", row)
        if self.tracking:
            self.tracking.evaluation(row)

    def save_samples(self, step: int, rows: Sequence[Row]) -> None:
        """Writes samples/step-NNNNNN.jsonl, whole."""
        text = "".join(json_line(row) for row in rows)
        write_whole(self.path / "samples" / f"step-{step:06d}.jsonl", text)


def append_line(file: Path, row: Row) -> None:
    """Appends one JSON line; if it cannot be written whole, the file stays as it was."""
    data = json_line(row).encode()
    with file.open("ab", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        try:
            written = 0
            while written < len(data):
                written += stream.write(data[written:])
        except OSError:
            os.ftruncate(stream.fileno(), size)
            raise


def json_line(row: Row) -> str:
    """The row as one line of JSON; what is not finite is null."""
    return json.dumps({key: finite(value) for key, value in row.items()}) + "\n"


def finite(value: object) -> object:
    """The value, or None in place of NaN and infinities."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def keep_lines(file: Path, wanted: Callable[[dict[str, int]], bool]) -> None:
    """Rewrites the file with the whole lines that are wanted."""
    kept = []
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        with contextlib.suppress(json.JSONDecodeError):
            if wanted(json.loads(line)):
                kept.append(line)
    write_whole(file, "".join(kept))


def write_whole(file: Path, text: str) -> None:
    """Replaces the file's content in one step."""
    draft = file.with_name(f".{file.name}.part")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def environment() -> dict[str, object]:
    """Where and with what a run was made."""
    cuda = torch.cuda.is_available()
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "git_commit": git_commit(),
        "machine": platform.platform(),
        "cpu_count": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
    }


def git_commit() -> str | None:
    """The commit of the repository in the current folder, if it is one."""
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
