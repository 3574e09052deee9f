"""Starts a recipe in another engine, or shows what would be started."""

import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from isentrope.config import TrainConfig, dump_toml
from isentrope.errors import ConfigError, DataError, require
from isentrope.integrations.trl import recipe as trl
from isentrope.integrations.verl import recipe as verl

if TYPE_CHECKING:
    from isentrope.training.run_folder import RunFolder

__all__ = ["launch"]

LOG, EARLIER = "metrics.jsonl", "metrics.earlier.jsonl"


def launch(
    config: TrainConfig, out: Path, *, engine: str, processes: int, resume: bool, dry_run: bool
) -> int:
    """Runs the engine to its end and returns 0; with `dry_run` prints the command only.

    What the engine cannot do is a ConfigError before anything is loaded or written.
    """
    if processes < 1:
        raise ConfigError(f"processes is {processes}; give 1 or more")
    check_objective(config)
    recipe = out.with_suffix(".toml")
    if engine == "trl":
        settings = trl.settings(config, out, processes)
        command = trl.command(recipe, out, processes, resume=resume)
        variables = trl.environment(config)
    else:
        settings = verl.overrides(config, out, processes)
        command = verl.command(settings, resume=resume)
        variables = verl.environment(config, out)
    if dry_run:
        sys.stdout.write(shown(settings, command, variables))
        return 0
    require(engine, engine)
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(dump_toml(config), encoding="utf-8")
    with closing(begin_folder(config, out, engine=engine, resume=resume)):
        code = subprocess.run(command, env={**os.environ, **variables}).returncode
        join_earlier(out)
    if code:
        raise DataError(f"{engine} ended with code {code}; its own messages stand above")
    return 0


def check_objective(config: TrainConfig) -> None:
    """Raises a ConfigError for what does not fit together in any engine."""
    from isentrope.control.combination import check_combination
    from isentrope.training.objective import make_objective

    make_objective(config.objective)
    check_combination(config)


def begin_folder(config: TrainConfig, out: Path, *, engine: str, resume: bool) -> "RunFolder":
    """The run folder, ready for the engine's processes; a used one is refused as for a local run."""
    from isentrope.training.run_folder import RunFolder

    folder = RunFolder.open(out, config, resume=resume)
    if engine == "verl":
        set_aside(out)
    update = trl.latest_update(out) if resume and engine == "trl" else 0
    folder.begin(config, update // config.optimizer.mini_batches)
    if engine == "verl":
        from isentrope.integrations.verl.data import write_data

        write_data(config, out)
    return folder


def set_aside(out: Path) -> None:
    """Moves the lines of the runs so far away from verl, whose logger begins its file anew."""
    join_earlier(out)
    if (out / LOG).exists():
        (out / LOG).replace(out / EARLIER)


def join_earlier(out: Path) -> None:
    """Puts the lines that were set aside before those of verl, down to the step of its first."""
    from isentrope.training.run_folder import write_whole

    if not (out / EARLIER).exists():
        return
    old, new = (whole_lines(out / name) for name in (EARLIER, LOG))
    first = json.loads(new[0])["step"] if new else math.inf
    kept = [line for line in old if json.loads(line)["step"] < first]
    write_whole(out / LOG, "".join([*kept, *new]))
    (out / EARLIER).unlink()


def whole_lines(file: Path) -> list[str]:
    """The lines of a file, without one that a killed process has left unfinished."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    return [line for line in lines if line.endswith("\n")]


def shown(settings: Mapping[str, object], command: list[str], variables: Mapping[str, str]) -> str:
    """The translation, and the command as it can be pasted into a shell."""
    width = max(map(len, settings))
    lines = [f"  {key:<{width}} = {value}" for key, value in settings.items()]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join(["settings:", *lines, "", "command:", *exports, shlex.join(command), ""])
