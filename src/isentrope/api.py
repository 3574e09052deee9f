"""isentrope from Python: train, look at runs, fit, compare, report, probe. Each loads what it needs.

    import isentrope

    run = isentrope.train("countdown", steps=20, objective={"loss": "kl_cov"})
    run.get("entropy/token_mean").values  # a numpy array; `run` alone shows its page in a notebook
    isentrope.fit(run).law

The same as the commands do, with the same files; errors are `isentrope.errors.IsentropeError`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isentrope.config import TrainConfig, recipe_of

if TYPE_CHECKING:
    from isentrope.law.study import Study
    from isentrope.report.run_files import Run
    from isentrope.tasks.problem import Task

__all__ = ["compare", "fit", "load_run", "probe", "train", "write_report"]

Recipe = str | Path | TrainConfig
Reward = str | Callable[..., Any]


def train(
    recipe: Recipe,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    task: "Task | None" = None,
    reward: Reward | Sequence[Reward] | None = None,
    on_step: Callable[[Mapping[str, float]], None] | None = None,
    **settings: Any,
) -> "Run":
    """Trains a recipe (a file, a name, or a TrainConfig) with the local engine; returns the run.

    `settings` go over those of the recipe: steps=20, objective={"loss": "kl_cov"}. `task` is an
    object with the methods of `Task`; `reward` one or several functions, or their names,
    called as TRL calls its own. `on_step` gets the metrics of each step. The run folder is `out`,
    or runs/NAME-seedN.
    """
    from rich.console import Console

    from isentrope.commands.display import Display
    from isentrope.tasks.registry import task_of
    from isentrope.training.trainer import train as train_recipe

    config = recipe_of(recipe, settings)
    folder = Path(out) if out else Path("runs") / f"{config.name}-seed{config.seed}"
    with Display(Console(highlight=False), on_step) as display:
        judged = task
        if reward is not None:
            rewards = [reward] if isinstance(reward, str) or callable(reward) else [*reward]
            judged = task_of(config, display.note, task=task, rewards=rewards)
        train_recipe(config, folder, resume=resume, display=display, task=judged)
    return load_run(folder)


def load_run(path: str | Path) -> "Run":
    """The run in a folder, or in the log of another trainer: its series as numpy arrays."""
    from isentrope.report.run_files import load_run as load

    return load(Path(path))


def fit(
    run: "str | Path | Run",
    *,
    entropy: str | None = None,
    reward: str | None = None,
    until: float | None = None,
    more: int | None = None,
    level: float = 0.9,
) -> "Study":
    """The law R = -a exp(H) + b on a run or a log, its verdict and forecast, as `isentrope fit`."""
    from isentrope.law.study import study_record

    found = load_run(run) if isinstance(run, str | Path) else run
    return study_record(
        found.record,
        entropy=entropy,
        reward=reward,
        until=until,
        more=more,
        backtested=False,
        level=level,
    )


def compare(
    recipes: Sequence[Recipe],
    *,
    seeds: Sequence[int] = (0,),
    out: str | Path = "runs/compare",
    jobs: int = 0,
    **settings: Any,
) -> "list[Run]":
    """Trains each recipe with each seed in processes of their own; the runs, in their order."""
    from rich.console import Console

    from isentrope.commands.compare import at_once
    from isentrope.commands.display import follow
    from isentrope.commands.processes import plan, run_all
    from isentrope.report.run_files import load_runs

    arms = [recipe_of(recipe, settings) for recipe in recipes]
    runs = plan([replace(arm, seed=seed) for arm in arms for seed in seeds], Path(out))
    follow(runs, run_all(runs, at_once(jobs)), Console(highlight=False))
    return load_runs(run.folder for run in runs)


def write_report(
    *runs: "str | Path | Run", out: str | Path | None = None, samples: int = 12
) -> Path:
    """Writes the HTML page of one run, or of several arms and seeds; returns its path."""
    from isentrope.commands.report import write
    from isentrope.report.run_files import load_runs

    found = [
        one
        for run in runs
        for one in (load_runs([Path(run)]) if isinstance(run, str | Path) else [run])
    ]
    return write(found, Path(out) if out else None, samples)[0]


def probe(recipe: Recipe, **settings: Any) -> dict[str, float]:
    """What the first step of a recipe would log before its update: entropy and covariances."""
    from isentrope.training.mechanism import probe as look

    return look(recipe_of(recipe, settings))
