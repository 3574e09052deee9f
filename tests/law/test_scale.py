"""The law over model size, against lines and tests known beforehand."""

from math import log
from pathlib import Path

import numpy as np
import pytest

from isentrope.errors import ConfigError, DataError
from isentrope.law.fit import Law, fit_law
from isentrope.law.ladder import climb, read_ladder
from isentrope.law.scale import Size, compare_laws, f_tail, fit_size, predict_size


def sizes(*parameters: float, error: float = 0.0) -> list[Size]:
    """Models on a = 0.1 + 0.02 ln N, b = 0.5 + 0.04 ln N, every second one off by `error`."""
    return [
        Size(parameters=n, a=0.1 + 0.02 * log(n), b=0.5 + 0.04 * log(n) + error * (-1) ** i)
        for i, n in enumerate(parameters)
    ]


def test_coefficients_on_a_line_are_predicted_on_it() -> None:
    found = predict_size(sizes(0.5e9, 1.5e9, 3e9, 7e9), 32e9)
    assert found.a == pytest.approx(0.1 + 0.02 * log(32e9))
    assert found.b == pytest.approx(0.5 + 0.04 * log(32e9))
    assert found.ceiling == pytest.approx(0.4 + 0.02 * log(32e9))
    assert found.ceiling_interval == pytest.approx([found.ceiling] * 2, abs=1e-6)
    assert found.extrapolation == pytest.approx(32 / 7)


def test_the_prediction_interval_is_that_of_a_regression() -> None:
    models = sizes(np.e, np.e**2, np.e**3, error=0.1)
    line = fit_size(models, "b")
    # x = 1, 2, 3; residuals of +-0.1 pattern (1, -1, 1) about their line: 2/30, -4/30, 2/30
    deviation = np.sqrt(24) / 30
    assert line.deviation == pytest.approx(deviation)
    half = 6.313752 * deviation * np.sqrt(1 + 1 / 3 + 4 / 2)  # t of one degree of freedom, at x = 4
    low, high = line.interval(np.e**4, 0.9) or (0.0, 0.0)
    assert (high - low) / 2 == pytest.approx(half, rel=1e-4)


def test_two_models_have_no_known_interval_and_one_no_line() -> None:
    assert predict_size(sizes(1e9, 2e9), 4e9).ceiling_interval is None
    with pytest.raises(DataError, match="at least 2 sizes"):
        predict_size(sizes(1e9, 1e9), 4e9)


@pytest.mark.parametrize(
    ("value", "half", "freedom", "p"),
    [(4.102821, 1, 10, 0.05), (2.866081, 2, 20, 0.05), (9.0, 1, 1e7, np.exp(-9.0))],
)
def test_tail_of_the_f_distribution(value: float, half: int, freedom: float, p: float) -> None:
    assert f_tail(value, half, freedom) == pytest.approx(p, rel=1e-4)


def noisy_law(rng: np.random.Generator, a: float = 0.3) -> Law:
    """A fit to 100 points with AR(1) noise."""
    h = 0.1 + 0.9 * np.exp(-np.arange(100) / 20)
    noise = rng.normal(size=100)
    for i in range(1, 100):
        noise[i] = 0.5 * noise[i - 1] + 0.866 * noise[i]
    return fit_law(h, 0.9 - a * np.exp(h) + 0.02 * noise)


def test_runs_of_one_law_are_told_apart_as_rarely_as_promised() -> None:
    rng = np.random.default_rng(1)
    apart = [not compare_laws([noisy_law(rng) for _ in range(3)]).shared for _ in range(100)]
    assert 0.01 <= np.mean(apart) <= 0.10


def test_runs_of_different_laws_are_told_apart() -> None:
    rng = np.random.default_rng(1)
    found = compare_laws([noisy_law(rng), noisy_law(rng, a=0.4)])
    assert not found.shared
    assert 0.29 < found.a < 0.41


def write(folder: Path, text: str) -> Path:
    """A ladder file."""
    path = folder / "runs.toml"
    path.write_text(text)
    return path


def test_a_ladder_of_given_coefficients_and_logs(tmp_path: Path) -> None:
    h = 1 / (1 + 0.1 * np.arange(60))
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        reward = 0.9 - 0.3 * np.exp(h) + 0.001 * rng.normal(size=60)
        lines = (
            f"step:{s} - actor/entropy:{x} - critic/rewards/mean:{r}\n"
            for s, (x, r) in enumerate(zip(h, reward, strict=True))
        )
        (tmp_path / f"{name}.log").write_text("".join(lines))
    ladder = read_ladder(
        write(
            tmp_path,
            """
            run = [
              {log = "one.log", family = "F", parameters = 1e9, algorithm = "GRPO"},
              {log = "two.log", family = "F", parameters = 1e9, algorithm = "RLOO"},
              {a = 0.4, b = 1.1, family = "F", parameters = 2e9},
            ]
            predict = [{family = "F", parameters = 4e9}]
            """,
        )
    )
    result = climb(ladder)
    ((family, prediction),) = result.predictions
    assert family == "F"
    assert prediction.a == pytest.approx(0.5, abs=0.01)
    assert prediction.b == pytest.approx(1.3, abs=0.01)
    ((model, agreement),) = result.agreements
    assert model == "F 1e+09"
    assert agreement.shared
    ((_, a_line, _),) = result.lines
    assert a_line.slope == pytest.approx(0.1 / log(2), abs=0.01)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "is no TOML"),
        ("[other]\nx = 1", r"must hold \[\[run\]\]"),
        ('[[run]]\nfamily = "F"\nparameters = 1e9', "either a log, or a and b"),
        ('[[run]]\nfamily = "F"\na = 1.0\nb = 2.0\nsize = 3', "unknown: size; missing: parameters"),
        ('[[run]]\nfamily = "F"\na = 1.0\nb = 2.0\nparameters = -1', "positive"),
    ],
)
def test_a_wrong_ladder_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_ladder(write(tmp_path, text))


def test_a_prediction_without_enough_sizes_is_refused(tmp_path: Path) -> None:
    text = (
        '[[run]]\nfamily="F"\na=0.1\nb=1.0\nparameters=1e9\n[[predict]]\nfamily="F"\nparameters=2e9'
    )
    with pytest.raises(ConfigError, match="at least 2 sizes whose law holds"):
        climb(read_ladder(write(tmp_path, text)))
