"""Every shipped recipe loads, and the one-file version of the method gives the library's numbers."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from isentrope.commands.display import Display
from isentrope.config import TrainConfig, dump_toml, load_config
from isentrope.errors import ConfigError
from isentrope.training.objective import make_objective
from isentrope.training.trainer import train

RECIPES = Path(__file__).parents[1] / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_a_recipe_loads_and_fits_together(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    make_objective(config.objective)
    resolved = tmp_path / "resolved.toml"
    resolved.write_text(dump_toml(config))
    assert load_config(resolved) == config


def test_a_recipe_inherits_what_it_does_not_say() -> None:
    base, arm = (
        load_config(RECIPES / "countdown.toml"),
        load_config(RECIPES / "countdown-kl-cov.toml"),
    )
    assert arm == replace(base, name="kl_cov", objective=arm.objective)


def test_a_recipe_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config(Path("countdown-kl-cov")) == load_config(RECIPES / "countdown-kl-cov.toml")
    (tmp_path / "countdown").write_text('name = "mine"')  # a file of one's own goes first
    assert load_config(Path("countdown")).name == "mine"
    with pytest.raises(ConfigError, match=r"no recipe countdow; .* a name: .*countdown-clip-cov"):
        load_config(Path("countdow"))


def test_odd_strings_survive_toml(tmp_path: Path) -> None:
    config = TrainConfig(name='a "b" \\ c\nd')
    (tmp_path / "odd.toml").write_text(dump_toml(config))
    assert load_config(tmp_path / "odd.toml") == config


def test_the_method_in_one_file_gives_the_numbers_of_the_library(tmp_path: Path) -> None:
    config = replace(load_config(RECIPES / "countdown-kl-cov.toml"), steps=3, probe_tokens=0)
    config = replace(config, evaluation=replace(config.evaluation, problems=1))
    with Display(Console(quiet=True)) as display:
        train(config, tmp_path / "run", resume=False, display=display)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    loop = runpy.run_path(str(RECIPES / "entropy_loop.py"))
    for step, row in enumerate(rows):
        entropy, reward = loop["train_step"](step)
        assert reward == row["reward/mean"]
        assert entropy == pytest.approx(row["entropy/sequence_mean"], abs=1e-4)
