"""Several runs side by side, each in a process of its own. Loads no torch."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from isentrope.config import TrainConfig, dump_toml
from isentrope.errors import ConfigError, DataError

__all__ = ["ArmRun", "plan", "run_all"]

POLL_S = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class ArmRun:
    """One run of a comparison: an arm with a seed."""

    config: TrainConfig
    folder: Path

    @property
    def label(self) -> str:
        """Arm and seed."""
        return f"{self.config.name} seed {self.config.seed}"

    @property
    def log(self) -> Path:
        """What the process prints."""
        return self.folder.with_suffix(".log")

    def progress(self) -> dict[str, float]:
        """The newest line of its metrics; empty before the first."""
        file = self.folder / "metrics.jsonl"
        if not file.exists():
            return {}
        with file.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - 8192))
            lines = stream.read().splitlines()
        return json.loads(lines[-1]) if lines else {}


def plan(arms: Sequence[TrainConfig], out: Path) -> list[ArmRun]:
    """The runs, each with a folder of its own inside `out`."""
    runs = [ArmRun(arm, out / f"{arm.name}-seed{arm.seed}") for arm in arms]
    folders = [run.folder for run in runs]
    for run in runs:
        if folders.count(run.folder) > 1:
            raise ConfigError(
                f"two arms are named {run.config.name!r}; give each recipe a name of its own"
            )
        if run.folder.exists():
            raise ConfigError(
                f"the run folder {run.folder} exists; remove it, or choose another with --out"
            )
    return runs


def run_all(runs: Sequence[ArmRun], jobs: int) -> Iterator[list[ArmRun]]:
    """Runs all of them, at most `jobs` at once; yields the unfinished ones from time to time.

    The first that fails ends the others, and its last words are in the DataError.
    """
    waiting, running = list(runs), dict[ArmRun, subprocess.Popen[bytes]]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                running[run] = start(run)
            time.sleep(POLL_S)
            for run, process in list(running.items()):
                code = process.poll()
                if code:
                    raise DataError(f"{run.label} failed with code {code}: {last_words(run.log)}")
                if code == 0:
                    del running[run]
            yield [*running, *waiting]
    finally:
        for process in running.values():
            process.terminate()
            process.wait()


def start(run: ArmRun) -> subprocess.Popen[bytes]:
    """The process of one run; its configuration lies beside its folder."""
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    recipe = run.folder.with_suffix(".toml")
    recipe.write_text(dump_toml(run.config), encoding="utf-8")
    command = [sys.executable, "-m", "isentrope.cli", "train", str(recipe)]
    with run.log.open("wb") as log:
        return subprocess.Popen(
            [*command, "--out", str(run.folder)], stdout=log, stderr=subprocess.STDOUT
        )


def last_words(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-8:]) + f"\nall of it: {log}"
