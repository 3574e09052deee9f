"""The guides' own lines, run as a reader would run them."""

# pyright: reportMissingImports=false
# The host library is not in the environment that is type-checked.

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

# The host libraries warn about their own futures on every start.
pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore")]


def blocks(guide: str, language: str) -> list[str]:
    """The code blocks of a guide."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / guide).read_text(), re.DOTALL)


def test_the_trl_script_runs_and_logs_what_it_says(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    script, law = blocks("trl.md", "python")
    file = tmp_path / "script.py"
    file.write_text(f"{script}\n{law}\nprint(trainer.state.log_history)\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(
        [sys.executable, str(file)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    for key in ("covariance/mean", "selected/tokens", "rollout/entropy_token_mean"):
        assert key in found.stdout


def test_verl_accepts_the_guide_s_overrides() -> None:
    package = pytest.importorskip("verl.trainer.config")
    from hydra import compose, initialize_config_dir

    words = shlex.split(blocks("verl.md", "bash")[0].replace("\\\n", " "))
    overrides = words[words.index("verl.trainer.main_ppo") + 1 :]
    folder = str(Path(package.__file__).parent)
    with initialize_config_dir(config_dir=folder, version_base=None):
        config = compose(config_name="ppo_trainer", overrides=overrides)
    assert config.actor_rollout_ref.actor.policy_loss.loss_mode == "isentrope_clip_cov"
    assert config.actor_rollout_ref.actor.policy_loss.clip_cov_ratio == 2e-4
