"""The folder of a run: everything that a report shows is in its files.

    config.toml         the resolved configuration
    environment.json    versions, hardware, command
    metrics.jsonl       one object a step
    evaluations.jsonl   one object an evaluation
    samples/            scored completions
    checkpoints/        what the run can be resumed from
    tracker_id, ...     what a tracker keeps there
    lock                held by the process that writes

Lines are appended whole: a run that is killed, or meets a full disk, leaves no torn line behind
that a resumed run would not remove. The lock is the kernel's (flock): it goes with its process,
however that ends, so the file that stays behind locks nobody out.
"""

import fcntl
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import torch

from isentrope.config import TrainConfig, differences, dump_toml, load_config
from isentrope.errors import ConfigError, DataError
from isentrope.runs.json_lines import read_objects
from isentrope.training.tracker import Tracking

__all__ = ["RunFolder"]

Row = Mapping[str, object]

PACKAGES = ("isentrope", "torch", "transformers", "numpy")


class RunFolder:
    """Writes the files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tracking: Tracking | None = None
        self._lock: IO[str] | None = None

    @classmethod
    def open(cls, path: Path, config: TrainConfig, *, resume: bool) -> "RunFolder":
        """The folder, checked and not yet written to.

        A new run must not find a run there; a resumed one must, with the same configuration or one
        that only lengthens it, and no other process at work on it.
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
        before = load_config(path / "config.toml")
        if config.steps > before.steps:
            check_lengthening(before, config, path)
            before = replace(before, steps=config.steps)
        changed = differences(before, config)
        if changed:
            raise ConfigError(
                f"{path} was started with another configuration:\n  "
                + "\n  ".join(changed)
                + f"\nresume it with its own (isentrope train {path / 'config.toml'} --out {path} "
                "--resume), or start a new run with --out"
            )
        folder = cls(path)
        folder.lock()
        return folder

    def lock(self) -> None:
        """Takes the folder for this process until `close`; DataError where another one has it."""
        if self._lock is not None:
            return
        file = (self.path / "lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise DataError(
                f"the run folder {self.path} is in use by {holder}; wait for it or end it, or choose "
                "another with --out"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}\n")
        file.flush()
        self._lock = file

    def close(self) -> None:
        """Lets go of the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def check_lines(self, step: int) -> None:
        """Raises a DataError where metrics.jsonl lacks a step before this one.

        The entropy controller and the number of the next problem are made again from these lines.
        """
        logged = {row.get("step") for row in self.logged_steps()}
        missing = [number for number in range(step) if number not in logged]
        if missing:
            raise DataError(
                f"{self.path / 'metrics.jsonl'} has no line of step {spans(missing)}, but the run is to "
                f"go on from step {step}, and what it does next depends on them. Put the lines back, "
                f"or resume from an earlier checkpoint with --from-step, at most {missing[0]}"
            )

    def begin(self, config: TrainConfig, step: int, tracking: Tracking | None = None) -> None:
        """Makes the folder, and a tracker, ready for the lines of this step and later ones."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        (self.path / "samples").mkdir(exist_ok=True)
        self.lock()
        write_whole(self.path / "config.toml", dump_toml(config))
        write_whole(self.path / "environment.json", json.dumps(environment(), indent=2) + "\n")
        for name in ("metrics.jsonl", "evaluations.jsonl"):
            file = self.path / name
            if file.exists():
                keep_lines(file, lambda row: row["step"] < step)
        if tracking:
            tracking.start(self.path, step)
            self.tracking = tracking

    def logged_steps(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return read_objects(self.path / "metrics.jsonl")

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


def check_lengthening(before: TrainConfig, config: TrainConfig, path: Path) -> None:
    """Raises a ConfigError where more steps would have changed those that are done."""
    reasons = []
    if before.optimizer.schedule != "constant":
        reasons.append(
            f"optimizer.schedule is {before.optimizer.schedule!r}, which was to end at step "
            f"{before.steps}"
        )
    if before.control.target_end is not None and before.control.target_steps is None:
        reasons.append(
            f"control.target_end was to be reached at step {before.steps}: control.target_steps was "
            "left out"
        )
    if reasons:
        raise ConfigError(
            f"{path} cannot be lengthened from {before.steps} to {config.steps} steps: "
            f"{'; '.join(reasons)}. A longer run would have done other steps from its beginning; "
            "start one with --out"
        )


def spans(numbers: Iterable[int]) -> str:
    """Sorted whole numbers in short: 3-5, 9."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


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
    write_whole(file, "".join(json_line(row) for row in read_objects(file) if wanted(row)))


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
