"""Starts a recipe in another engine, or shows what would be started."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from isentrope.config import TrainConfig, dump_toml
from isentrope.engines import trl, verl
from isentrope.errors import ConfigError, DataError, require

__all__ = ["launch"]


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
    begin_folder(config, out, engine=engine, resume=resume)
    code = subprocess.run(command, env={**os.environ, **variables}).returncode
    if code:
        raise DataError(f"{engine} ended with code {code}; its own messages stand above")
    return 0


def check_objective(config: TrainConfig) -> None:
    """Raises a ConfigError for what does not fit together in any engine."""
    from isentrope.training.controller import check_combination
    from isentrope.training.objective import make_objective

    make_objective(config.objective)
    check_combination(config)


def begin_folder(config: TrainConfig, out: Path, *, engine: str, resume: bool) -> None:
    """The run folder, ready for the engine's processes; a used one is refused as for a local run."""
    from isentrope.training.run_dir import RunFolder

    folder = RunFolder.open(out, config, resume=resume)
    update = trl.latest_update(out) if resume and engine == "trl" else 0
    folder.begin(config, update // config.optimizer.mini_batches)
    if engine == "verl":
        from isentrope.engines.verl_data import write_data

        write_data(config, out)


def shown(settings: Mapping[str, object], command: list[str], variables: Mapping[str, str]) -> str:
    """The translation, and the command as it can be pasted into a shell."""
    width = max(map(len, settings))
    lines = [f"  {key:<{width}} = {value}" for key, value in settings.items()]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join(["settings:", *lines, "", "command:", *exports, shlex.join(command), ""])
