"""What a person sees of a run while it goes: a progress bar, or one line an evaluation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from isentrope.commands.health import Health
from isentrope.commands.processes import ArmRun
from isentrope.config import PrimeConfig, TrainConfig

__all__ = ["Display", "follow"]

HALVED = ("micro_batch_size", "sampling_rows")
"""Metrics that a step has where memory was too small for the sizes that are set."""


class Display:
    """Shows a run on a console; use it as a context manager."""

    def __init__(
        self, console: Console, on_step: Callable[[Mapping[str, float]], None] | None = None
    ) -> None:
        """`on_step` gets the metrics of each step too."""
        self.console = console
        self.on_step = on_step
        self.progress = progress_bars(console)
        self.bar = self.progress.add_task("run", total=None, state="")
        self.steps = 0
        self.halved: dict[str, float] = {}
        self.health: Health | None = None

    def __enter__(self) -> "Display":
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def start(self, config: TrainConfig, out: Path, first: int) -> None:
        """Says what is about to run, and what about it might surprise."""
        self.steps = config.steps
        self.health = Health(config)
        self.progress.update(self.bar, description=config.name, total=config.steps, completed=first)
        begin = f"from step {first}" if first else f"seed {config.seed}"
        self.console.print(f"{config.name}: {objective_line(config)}; {begin}; into {out}")
        for note in notes(config):
            self.note(note)

    def note(self, text: str) -> None:
        """One line about what might surprise."""
        self.console.print(f"note: {text}")

    def step(self, metrics: Mapping[str, float]) -> None:
        """Moves the bar, with entropy and reward on it; says once when memory ran out."""
        self.progress.update(self.bar, advance=1, state=state(metrics))
        halved = {name: metrics[name] for name in HALVED if name in metrics}
        if halved != self.halved:
            self.halved = halved
            sizes = ", ".join(f"{name} {size:g}" for name, size in halved.items())
            self.note(f"memory ran out; going on with {sizes}")
        if self.on_step:
            self.on_step(metrics)
        for finding in self.health.step(metrics) if self.health else []:
            self.note(finding)

    def evaluation(self, row: Mapping[str, float | str]) -> None:
        """One line."""
        if self.health:
            self.health.evaluation(row)
        k = row["k"]
        self.console.print(
            f"step {row['step']:>5} of {self.steps}  H {row['entropy/token_mean']:.4f}  "
            f"avg@{k} {row['reward/avg']:.3f}  pass@{k} {row['reward/pass']:.3f}"
        )


def follow(runs: Sequence[ArmRun], states: Iterable[list[ArmRun]], console: Console) -> None:
    """Shows a bar for each run of a comparison while they go, and a line when one ends."""
    bars = progress_bars(console)
    tasks = {run: bars.add_task(run.label, total=run.config.steps, state="") for run in runs}
    unfinished = set(runs)
    with bars:
        for left in states:
            for run in [run for run in tasks if run in unfinished]:
                if row := run.progress():
                    bars.update(tasks[run], completed=row["step"] + 1, state=state(row))
                if run not in left:
                    unfinished.remove(run)
                    console.print(f"{run.label}: done, {run.config.steps} steps")


def progress_bars(console: Console) -> Progress:
    """Bars with the state of a run behind them; nothing where there is no terminal."""
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
        console=console,
        disable=not console.is_terminal,
    )


def state(metrics: Mapping[str, float]) -> str:
    """Entropy and reward of a step."""
    return f"H {metrics['entropy/token_mean']:.3f}  reward {metrics['reward/mean']:.3f}"


def objective_line(config: TrainConfig) -> str:
    """The terms of the loss that act, in one line."""
    objective = config.objective
    terms = [f"{objective.loss} on {objective.advantage} advantages, {objective.reducer}"]
    if objective.entropy_coefficient:
        terms.append(f"- {objective.entropy_coefficient:g} entropy")
    if objective.reference_kl_coefficient:
        place = " in the reward" if objective.reference_kl_place == "reward" else ""
        terms.append(f"+ {objective.reference_kl_coefficient:g} KL to the start policy{place}")
    if objective.shaping != "none":
        terms.append(f"with {objective.shaping} shaping")
    if config.control.name != "none":
        terms.append(f"under control {config.control.name}")
    return " ".join(terms)


def notes(config: TrainConfig) -> list[str]:
    """Settings that are allowed and may not do what was meant."""
    found = []
    idle = config.objective.loss == "kl_cov" and config.optimizer.mini_batches == 1
    if idle and config.objective.kl_estimator != "k1":
        found.append(
            "kl_cov with one mini-batch a step does nothing: while the policy is the one that "
            "sampled, its penalty has no gradient; set optimizer.mini_batches to 2 or more"
        )
    whole = not config.model.lora_rank or config.objective.advantage == "prime"
    if config.model.dtype == "bfloat16" and whole:
        found.append(
            "a weight in bfloat16 loses every update below 1/256 of its size, and an update is of "
            f"about optimizer.learning_rate = {config.optimizer.learning_rate:g}; set model.dtype "
            "to float32 and model.compute_dtype to bfloat16, or train adapters (model.lora_rank), "
            "which are float32 (PRIME's reward model has none)"
        )
    found += control_notes(config)
    if config.objective.selection == "micro_batch":
        found.append(
            "tokens are selected in each micro-batch, so the result depends on "
            "optimizer.micro_batch_size"
        )
    if config.rollout.temperature != 1:
        found.append(
            "the logged entropy is at temperature 1, the losses are at "
            f"rollout.temperature = {config.rollout.temperature:g}"
        )
    return found


def control_notes(config: TrainConfig) -> list[str]:
    """Algorithms and controls that are set and cannot act, or act otherwise than in their paper."""
    found, objective, control = [], config.objective, config.control
    if objective.loss in ("cispo", "gspo", "gmpo") and config.optimizer.mini_batches == 1:
        found.append(
            f"{objective.loss} with one mini-batch a step never clips: its ratio is 1 while the "
            "policy is the one that sampled; set optimizer.mini_batches to 2 or more"
        )
    if objective.loss in ("gspo", "gmpo") and objective.reducer != "sequence_mean":
        found.append(
            f"{objective.loss} is defined with objective.reducer = sequence_mean; with "
            f"{objective.reducer} long responses weigh more"
        )
    if objective.advantage != "prime" and config.prime != PrimeConfig():
        found.append(
            f"the section [prime] does nothing with advantage {objective.advantage!r}; set "
            "objective.advantage to prime, or leave it out"
        )
    if control.name in ("adaptive", "band") and control.delta == 0:
        found.append("control.delta is 0: the bonus is the same in every step, namely 0")
    if control.name == "budget" and control.gain == 0 and control.integral_gain == 0:
        found.append("control.gain and integral_gain are 0: the budget is 0 in every step")
    return found
