"""Benchmarks from start to end with a scripted model, and the group sampler with a random one."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from isentrope.errors import ConfigError, DataError
from isentrope.evaluation.generation import Completion, LocalGenerator, load_generator
from isentrope.evaluation.samples import (
    Sample,
    Settings,
    check_settings,
    read_samples,
    run_benchmark,
    seed_of,
)
from isentrope.evaluation.suites import BENCHMARKS, SUITES, Benchmark, choose_benchmarks
from isentrope.evaluation.summary import compare, summarise
from isentrope.policy.builtin import builtin_path
from isentrope.policy.model import language_model

pytest.importorskip("math_verify")

SETTINGS = Settings(model="scripted", max_new_tokens=8, batch_size=4)


class Scripted:
    """Answers 1 or 2 by its draw; counts the completions that it made."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.made = 0
        self.stop_after = stop_after

    def encode(self, prompt: str) -> list[int]:
        return [len(prompt)]

    def decode(self, token_ids: Sequence[int]) -> str:
        return f"so \\boxed{{{token_ids[0]}}}"

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        *,
        temperature: float,
        max_new_tokens: int,
    ) -> list[Completion]:
        if self.stop_after is not None and self.made >= self.stop_after:
            raise KeyboardInterrupt
        self.made += len(prompts)
        draws = [1 + int(np.random.default_rng(seed).random() < 0.5) for seed in seeds]
        return [Completion((draw, 0), (-0.5, -1.5), (1.0, 2.0), False) for draw in draws]


def silent(benchmark: Benchmark, done: int, total: int, samples: list[Sample]) -> None:
    assert 0 < done <= total


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    rows = [{"problem": f"p{n}", "answer": str(1 + n % 2)} for n in range(5)]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Benchmark(name="set", task=str(path), samples=3, temperature=0.6)


def test_record_and_scores(benchmark: Benchmark, tmp_path: Path) -> None:
    samples = run_benchmark(benchmark, SETTINGS, Scripted(), tmp_path, silent)
    assert len(samples) == 15
    assert samples == read_samples(tmp_path / "set.jsonl")
    for sample in samples:
        assert sample.score == float(sample.answer == sample.gold)
    summary = summarise(samples)
    right = [[s.score or 0.0 for s in samples if s.problem == n] for n in range(5)]
    assert summary.average.mean == pytest.approx(np.mean([np.mean(r) for r in right]))
    assert summary.passes[3].mean == pytest.approx(np.mean([max(r) for r in right]))
    # three votes for two answers: the majority is right where two are
    assert summary.majority.mean == pytest.approx(np.mean([sum(r) >= 2 for r in right]))
    assert (summary.entropy_token_mean, summary.entropy_sequence_mean) == (1.5, 1.5)
    assert (summary.length_mean, summary.truncated, summary.k) == (2.0, 0.0, 3)


def test_stopped_run_continues_to_the_same_record(benchmark: Benchmark, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    run_benchmark(benchmark, SETTINGS, Scripted(), whole, silent)
    with pytest.raises(KeyboardInterrupt):
        run_benchmark(benchmark, SETTINGS, Scripted(stop_after=8), parts, silent)
    with (parts / "set.jsonl").open("a") as file:
        file.write('{"benchmark": "set", "prob')  # a line that was being written
    rest = Scripted()
    run_benchmark(benchmark, SETTINGS, rest, parts, silent)
    assert rest.made == 15 - 8
    assert (parts / "set.jsonl").read_bytes() == (whole / "set.jsonl").read_bytes()


def test_seeds_do_not_depend_on_the_batch(benchmark: Benchmark, tmp_path: Path) -> None:
    records = []
    for size in (1, 7):
        folder = tmp_path / str(size)
        folder.mkdir()
        settings = Settings(model="scripted", batch_size=size)
        records.append(run_benchmark(benchmark, settings, Scripted(), folder, silent))
    assert records[0] == records[1]
    assert seed_of(0, "a", 1, 2) != seed_of(0, "a", 2, 1)


def test_other_settings_or_problems_are_refused(benchmark: Benchmark, tmp_path: Path) -> None:
    check_settings(SETTINGS, [benchmark], tmp_path)
    check_settings(SETTINGS, [benchmark], tmp_path)
    other = Settings(model="scripted", max_new_tokens=9, batch_size=4)
    with pytest.raises(ConfigError, match=r"other settings \(max_new_tokens\)"):
        check_settings(other, [benchmark], tmp_path)
    run_benchmark(benchmark, SETTINGS, Scripted(), tmp_path, silent)
    path = Path(benchmark.task)
    path.write_text(path.read_text().replace('"answer": "1"', '"answer": "3"'))
    with pytest.raises(ConfigError, match="is of other problems"):
        run_benchmark(benchmark, SETTINGS, Scripted(), tmp_path, silent)
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match="sample 1: no sample"):
        read_samples(tmp_path / "x.jsonl")


def sample(problem: int, score: float | None, number: int = 0) -> Sample:
    return Sample(
        benchmark="x", problem=problem, sample=number, seed=0, gold="1", completion="", answer="1",
        vote=str(score), score=score, outcome="right", detail="", tokens=2 + problem,
        truncated=problem == 1, entropy=float(problem), logprob=-1.0,
    )  # fmt: skip


def test_summary_by_hand() -> None:
    samples = [sample(0, 1.0), sample(0, 0.0, 1), sample(1, 0.0), sample(1, None, 1)]
    summary = summarise(samples)
    assert summary.average.mean == 0.25  # (1/2 + 0) / 2; the None is in no mean
    assert summary.passes[1].mean == 0.25
    assert summary.passes[2].mean == 1.0  # problem 1 has one judged sample, and no pass@2
    assert summary.entropy_token_mean == pytest.approx(6 / 10)  # tokens 2, 2, 3, 3
    assert summary.entropy_sequence_mean == 0.5
    assert summary.truncated == 0.5
    unjudged = summarise([sample(0, None)]).record()
    assert unjudged["reward/avg"] is None


def test_models_are_paired_by_problem() -> None:
    first = [sample(n, 0.0) for n in range(4)]
    second = [sample(n, 1.0) for n in (3, 1, 7)]
    result = compare(first, second)
    assert (result.difference.mean, result.difference.problems) == (1.0, 2)


def test_paper_protocol() -> None:
    assert len(SUITES["paper"]) == 7
    for name in SUITES["paper"]:
        contest = name in ("aime24", "aime25", "amc")
        benchmark = BENCHMARKS[name]
        assert (benchmark.samples, benchmark.temperature) == ((32, 0.6) if contest else (1, 0.0))


def test_choice_of_benchmarks(tmp_path: Path) -> None:
    [math500] = choose_benchmarks(["math500"], files={"math500": "x"}, limit=3)
    assert (math500.path, math500.limit) == ("x", 3)
    with pytest.raises(ConfigError, match=r"there is no math500\.jsonl; name the file with --file"):
        choose_benchmarks(["math500"], data=str(tmp_path))
    with pytest.raises(ConfigError, match="no suite, benchmark or file 'mth'"):
        choose_benchmarks(["mth"])
    with pytest.raises(ConfigError, match="4 greedy samples are all the same"):
        choose_benchmarks(["math500"], samples=4)
    with pytest.raises(ConfigError, match="no benchmark of this run is called gsm8k"):
        choose_benchmarks(["math500"], files={"gsm8k": "x"})


def test_suite_files_have_the_rows_of_the_paper(shared: Path) -> None:
    from isentrope.tasks.registry import read_problems

    rows = {"math500": 500, "aime24": 30, "aime25": 30, "amc": 83, "omni_math": 2821,
            "olympiadbench": 675, "minerva_math": 272}  # fmt: skip
    for benchmark in choose_benchmarks(["paper"], data=str(shared / "data")):
        assert len(read_problems(benchmark.task, benchmark.path)) == rows[benchmark.name]


def random_generator() -> LocalGenerator:
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=12, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, eos_token_id=1, pad_token_id=None,
        initializer_range=0.6,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(builtin_path("countdown"))
    return LocalGenerator(language_model(LlamaForCausalLM(config).eval(), tokenizer))


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
def test_rows_of_a_batch_do_not_disturb_each_other(temperature: float) -> None:
    """Each completion alone and together: same tokens, and log-probs as a forward pass gives."""
    generator = random_generator()
    prompts = [[3, 4], [5, 6, 7, 8, 9], [5, 6, 7, 8, 9], [2], [10, 3, 3]]
    seeds = [1, 2, 3, 4, 5]
    limits = {"temperature": temperature, "max_new_tokens": 12}
    together = generator.generate(prompts, seeds, **limits)  # pyright: ignore[reportArgumentType]
    if temperature:
        assert len({completion.token_ids for completion in together}) >= 4
        assert any(len(c.token_ids) < 12 for c in together)  # some row left the batch
    for prompt, seed, found in zip(prompts, seeds, together, strict=True):
        [alone] = generator.generate([prompt], [seed], **limits)  # pyright: ignore[reportArgumentType]
        assert alone.token_ids == found.token_ids
        assert alone.logprobs == pytest.approx(found.logprobs, abs=1e-5)
        ids = torch.tensor([[*prompt, *alone.token_ids]])
        with torch.no_grad():
            logits = generator.model.network(input_ids=ids).logits[0]
        logits = logits[len(prompt) - 1 : -1].log_softmax(-1)
        expected = logits.gather(1, torch.tensor(alone.token_ids)[:, None])[:, 0]
        assert list(alone.logprobs) == pytest.approx(expected.tolist(), abs=1e-5)
        entropy = -(logits.exp() * logits).sum(-1)
        assert list(alone.entropies) == pytest.approx(entropy.tolist(), abs=1e-5)
        assert alone.truncated == (alone.token_ids[-1] != 1)
        assert 1 not in alone.token_ids[:-1]  # nothing follows an end token
        if temperature == 0:
            assert list(alone.token_ids) == logits.argmax(-1).tolist()


def test_missing_model_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="could not be loaded"):
        load_generator(str(tmp_path))
