import html as markup
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from isentrope.commands import report
from isentrope.errors import ConfigError, DataError
from isentrope.objective.advantages import ADVANTAGES
from isentrope.objective.losses import LOSSES
from isentrope.report.laws import STEERING, intervention
from isentrope.report.page import render
from isentrope.report.run_files import load_run, load_runs

MakeRun = Callable[..., Path]


def page_of(*folders: Path) -> str:
    return render(load_runs(folders))


def text_of(html: str) -> str:
    """The visible words of a page."""
    body = re.sub(r"<(style|script)>.*?</\1>", " ", html, flags=re.DOTALL)
    words = markup.unescape(re.sub(r"<[^>]+>", " ", body))
    return re.sub(r"\s+", " ", words)


def test_verdict_without_noise_gives_the_numbers_of_the_formula(make_run: MakeRun) -> None:
    # H: 0.25 -> 0.08 + 0.17 e^-3 = 0.0885; R = 1.74 - 0.95 e^H: 0.5202 -> 0.7021; b - a = 0.79.
    text = text_of(page_of(make_run(noise=0.0)))
    assert "Entropy fell from 0.250 to 0.088 nats in 120 steps: 65 % is gone" in text
    assert "Accuracy on countdown (avg@8) went from 52.0 % to 70.2 %" in text
    assert "pass@8 from 94.0 % to 86.7 %" in text  # 0.94 - 0.45 (0.25 - 0.0885)
    assert "R = -0.950 exp(H) + 1.740 holds (R2 1.00)" in text
    assert "accuracy would be 79.0 %" in text
    assert "foresaw the others with an error of 0.0 points" in text


def test_every_loss_and_advantage_is_known_to_steer_or_not() -> None:
    """A new one must be put into the report's table, or named here."""
    plain = {
        "loss": {"ppo_clip", "policy_gradient", "cispo", "gspo", "gmpo"},
        "advantage": {
            *("grpo", "dr_grpo", "rloo", "opo", "prime"),
            *("reinforce_pp", "reinforce_pp_baseline"),
        },
    }
    for key, table in (("loss", LOSSES), ("advantage", ADVANTAGES)):
        steering = {name for name in table if intervention({"objective": {key: name}})}
        assert steering == set(table) - plain[key]
        assert steering == set(STEERING[key])


def test_half_of_the_loss_is_dated(make_run: MakeRun) -> None:
    # Half of 0.1615 nats is gone when e^(-t/40) = 1 - 0.0808/0.17, t = 25.8: evaluated at step 30.
    assert "half of the loss by step 30" in text_of(page_of(make_run(noise=0.0)))


def test_rising_entropy_gets_no_ceiling_but_a_reason(make_run: MakeRun) -> None:
    text = text_of(page_of(make_run(floor=1.2, noise=0.0)))
    assert "No ceiling is given: entropy explodes" in text
    assert "there is no law to forecast with: Forecast from the first quarter" in text
    assert "accuracy would be" not in text
    assert "explosion from step" in text


def test_a_run_that_steers_its_entropy_gets_no_ceiling(make_run: MakeRun) -> None:
    text = text_of(page_of(make_run(name="kl_cov", floor=0.15)))
    assert "No ceiling is given: the run steers its entropy (loss = 'kl_cov')" in text


@pytest.mark.parametrize(
    ("section", "setting", "value"),
    [
        ("objective", "loss", "clip_cov"),
        ("objective", "loss", "top_entropy"),
        ("objective", "loss", "budget"),
        ("objective", "shaping", "success"),
        ("objective", "shaping", "covariance_kernel"),
        ("objective", "entropy_coefficient", 0.01),
        ("objective", "reference_kl_coefficient", 0.1),
        ("objective", "clip_high", 0.28),
        ("control", "name", "budget"),
    ],
)
def test_every_way_to_steer_the_entropy_is_noticed(
    section: str, setting: str, value: object
) -> None:
    plain = {"objective": {"loss": "ppo_clip", "shaping": "none", "entropy_coefficient": 0.0}}
    assert intervention(plain) is None
    steered = {**plain, section: {**plain.get(section, {}), setting: value}}
    assert f"{section}.{setting} = {value!r}".partition(".")[2] in str(intervention(steered))


def test_page_needs_nothing_from_outside(make_run: MakeRun) -> None:
    html = page_of(make_run())
    assert "http" not in html
    assert not re.search(r"<(link|img|iframe)|src=|url\(|@import", html)
    assert "prefers-color-scheme: dark" in html


def test_every_figure_of_the_run_is_there(make_run: MakeRun) -> None:
    html = page_of(make_run())
    titles = re.findall(r"<figure><h3>(.*?)</h3>", html)
    assert len(titles) == len(set(titles)) == 18
    assert "Without a figure" not in html
    assert "NaN" not in html
    assert "nan" not in re.findall(r'(?: d|points|c[xy])="([^"]*)"', html)


def test_completions_are_escaped_and_coloured(make_run: MakeRun) -> None:
    html = page_of(make_run())
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert html.count("<article>") == 12
    assert re.search(r'style="--e:\d+;--c:\d+" title="log-prob [^"]+"> &lt;</i>', html)


def test_missing_samples_and_nulls_are_said(make_run: MakeRun) -> None:
    folder = make_run(samples=False)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row["grad_norm"] = None
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = text_of(page_of(folder))
    assert "No completions were saved in samples/." in text
    assert "Without a figure, not logged: Gradient norm." in text


def test_a_torn_last_line_is_left_out_and_said(make_run: MakeRun) -> None:
    folder = make_run()
    whole = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(whole[:-40])
    text = text_of(page_of(folder))
    assert "the last line (120) is torn" in text


def test_metrics_alone_are_enough(make_run: MakeRun) -> None:
    folder = make_run(samples=False)
    for name in ("evaluations.jsonl", "config.toml", "environment.json"):
        (folder / name).unlink()
    text = text_of(page_of(folder))
    assert "Nothing was validated; the training reward went from" in text
    assert "not saved" in text


def test_settings_and_environment_are_shown_by_dotted_key(make_run: MakeRun) -> None:
    html = page_of(make_run())
    assert '<th>model.path</th><td class="code">builtin:countdown</td>' in html
    assert '<th>cpu.cores</th><td class="code">2</td>' in html


def test_arms_of_several_seeds_become_one_row_each(make_run: MakeRun) -> None:
    folders = [make_run(seed=seed, noise=0.0) for seed in (0, 1)]
    folders += [make_run("kl_cov", seed, floor=0.15, noise=0.0, selected=0.02) for seed in (0, 1)]
    html = page_of(*folders)
    rows = re.findall(r"<tr>(<th class=\"c\d\">.*?)</tr>", html)
    cells = [
        re.sub(r"<[^>]+>|&rarr;", " ", row.replace("</td>", "|").replace("</th>", "|")).split("|")
        for row in rows
    ]
    grpo, kl_cov = [[" ".join(cell.split()) for cell in row][:-1] for row in cells]
    # 120 steps of 1.4 s are 2.8 minutes.
    assert grpo == [
        "grpo", "2", "120", "0.250 0.088", "52.0 70.2", "94.0 86.7", "0.950", "1.740", "1.00",
        "79.0", "0.00", "2.8",
    ]  # fmt: skip
    assert kl_cov[:4] == ["kl_cov", "2", "120", "0.250 0.155"]
    assert kl_cov[-3:] == ["\u2013", "2.00", "2.8"]
    assert "kl_cov: no ceiling; the run steers its entropy" in text_of(html)
    assert "http" not in html


def test_settings_that_differ_are_listed_once(make_run: MakeRun) -> None:
    html = page_of(make_run("grpo"), make_run("kl_cov", seed=5, steps=100))
    table = html[html.index("Settings that differ") : html.index("<h2>Environment")]
    assert re.findall(r"<tr><th>([a-z.]+)</th>", table) == ["steps", "objective.loss"]


def test_log_of_another_trainer(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    rows = [
        {
            "step": s,
            "data": {"actor/entropy": 0.5 * 0.97**s, "critic/rewards/mean": 1 - 0.3 * 0.97**s},
        }
        for s in range(60)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = text_of(page_of(log))
    assert "verl" in text
    assert "Entropy fell from 0.500 to 0.083 nats" in text


@pytest.mark.parametrize("name", ["trl-explosion-step_logs.json", "verl-gpg-qwen2-7b-math.log"])
def test_public_logs_render(shared: Path, name: str) -> None:
    text = text_of(page_of(shared / "logs" / name))
    assert "No ceiling is given" in text


def test_command_writes_beside_the_run_and_says_where(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run()
    assert report.run(report.Options(runs=(folder,))) == 0
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "report.html" in capsys.readouterr().out


def test_command_takes_the_folder_of_runs(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=0)
    make_run(seed=1)
    assert report.run(report.Options(runs=(tmp_path,))) == 0
    assert "2 runs in 1 arm." in text_of((tmp_path / "report.html").read_text(encoding="utf-8"))


def test_wrong_input_is_named(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run folder given"):
        report.run(report.Options(runs=()))
    with pytest.raises(DataError, match="nowhere"):
        load_runs([tmp_path / "nowhere"])
    with pytest.raises(DataError, match="no log that can be read"):
        load_run(tmp_path)
    folder = make_run()
    with pytest.raises(ConfigError, match="cannot write"):
        report.run(report.Options(runs=(folder,), out=tmp_path / "no" / "such" / "x.html"))
    (folder / "environment.json").write_text("{")
    with pytest.raises(DataError, match=r"environment\.json is not valid JSON"):
        load_run(folder)
    (folder / "config.toml").write_text("name = ")
    with pytest.raises(DataError, match=r"config\.toml is not valid TOML"):
        load_run(folder)


def test_lists_of_a_sample_must_agree(make_run: MakeRun) -> None:
    folder = make_run()
    row = {"step": 3, "tokens": ["a", "b"], "entropy": [0.1]}
    (folder / "samples" / "000000.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match="step 3 has 2 tokens, but entropy is 1 values"):
        page_of(folder)
