"""Trackers: the lines of metrics.jsonl and evaluations.jsonl, also for TensorBoard, wandb, trackio.

A failure of a tracker is noted once, and ends the tracking and not the run: everything is in the
run folder anyway. A resumed run goes on in the same run of its tracker.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Protocol

from isentrope.config import TrainConfig
from isentrope.errors import require

__all__ = ["TRACKERS", "Tracking"]

EXTRA = "trackers"
PROJECT = "isentrope"
IDENTITY = "tracker_id"
"""File of a run folder: a name that no other run has."""

Numbers = dict[str, float]


class Tracker(Protocol):
    """A tracker's run."""

    def log(self, numbers: Numbers, step: int) -> None:
        """Takes some numbers of a step."""
        ...

    def close(self) -> None:
        """Sends what is left."""
        ...


class TensorBoard:
    """Event files in the folder `tensorboard` of the run."""

    def __init__(self, config: TrainConfig, folder: Path, first: int) -> None:
        writer = require("torch.utils.tensorboard", EXTRA).SummaryWriter
        self.writer = writer(str(folder / "tensorboard"), purge_step=first or None)

    def log(self, numbers: Numbers, step: int) -> None:
        """Takes some numbers of a step."""
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        """Sends what is left."""
        self.writer.close()


class Wandb:
    """A run of Weights & Biases; WANDB_MODE=offline keeps it in the folder `wandb` of the run."""

    def __init__(self, config: TrainConfig, folder: Path, first: int) -> None:
        wandb = require("wandb", EXTRA)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=label(config),
            id=identity(folder),
            resume="allow",
            dir=str(folder),
            config=asdict(config),
            settings=wandb.Settings(console="off"),
        )
        self.run.define_metric("*", step_metric="step")  # its own steps only ever rise

    def log(self, numbers: Numbers, step: int) -> None:
        """Takes some numbers of a step."""
        self.run.log({**numbers, "step": step})

    def close(self) -> None:
        """Sends what is left."""
        self.run.finish()


class Trackio:
    """A run of trackio, in its own local folder or where its environment variables say."""

    def __init__(self, config: TrainConfig, folder: Path, first: int) -> None:
        self.trackio = require("trackio", EXTRA)
        self.run = self.trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=f"{label(config)}-{identity(folder)}",
            resume="allow",
            config=asdict(config),
            embed=False,
        )

    def log(self, numbers: Numbers, step: int) -> None:
        """Takes some numbers of a step."""
        self.run.log(numbers, step=step)

    def close(self) -> None:
        """Sends what is left."""
        self.trackio.finish()


TRACKERS: dict[str, tuple[str, Callable[[TrainConfig, Path, int], Tracker]]] = {
    # name: (the package it needs, how its run is opened)
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", Wandb),
    "trackio": ("trackio", Trackio),
}


class Tracking:
    """What a run tells its tracker, if it has one."""

    def __init__(self, config: TrainConfig, note: Callable[[str], None]) -> None:
        """A package that is not installed is an error here, before anything is loaded."""
        self.config = config
        self.note = note
        self.tracker: Tracker | None = None
        if config.tracker != "none":
            require(TRACKERS[config.tracker][0], EXTRA)

    def start(self, folder: Path, first: int) -> None:
        """Opens the tracker's run, for the step `first` and later ones."""
        if self.config.tracker == "none":
            return
        try:
            self.tracker = TRACKERS[self.config.tracker][1](self.config, folder, first)
        except Exception as error:  # a host library's, of any kind
            self.give_up(error)

    def step(self, row: Mapping[str, object]) -> None:
        """Takes a line of metrics.jsonl."""
        self.log(row, "")

    def evaluation(self, row: Mapping[str, object]) -> None:
        """Takes a line of evaluations.jsonl; its names get `evaluation/` in front."""
        self.log(row, "evaluation/")

    def log(self, row: Mapping[str, object], prefix: str) -> None:
        """Hands the finite numbers of a row to the tracker."""
        if self.tracker is None:
            return
        numbers = {prefix + name: value for name, value in numbers_of(row).items()}
        step = numbers.pop(f"{prefix}step")
        try:
            self.tracker.log(numbers, int(step))
        except Exception as error:  # a host library's, of any kind
            self.give_up(error)

    def close(self) -> None:
        """Ends the tracker's run."""
        if self.tracker is None:
            return
        try:
            self.tracker.close()
        except Exception as error:  # a host library's, of any kind
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Says why, and tracks no more."""
        self.tracker = None
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        self.note(f"{self.config.tracker} failed and is off: {reason}; the run goes on")


def numbers_of(row: Mapping[str, object]) -> Numbers:
    """The finite numbers of a row."""
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, int | float) and isfinite(value)
    }


def label(config: TrainConfig) -> str:
    """What a person calls the run."""
    return f"{config.name}-seed{config.seed}"


def identity(folder: Path) -> str:
    """The run's own name for its tracker: made once, so that a resumed run finds itself again."""
    file = folder / IDENTITY
    if not file.exists():
        file.write_text(secrets.token_hex(4), encoding="utf-8")
    return file.read_text(encoding="utf-8")
