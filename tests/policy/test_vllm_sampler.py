"""vLLM against the trainer, for real on a CPU; and what of the sampler needs no vLLM.

make test-vllm installs a CPU build of vLLM and runs the marked tests.
"""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from math import log
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from isentrope.config import TrainConfig, VllmConfig
from isentrope.errors import ConfigError, MissingExtraError
from isentrope.objective.streams import stream
from isentrope.policy.filtering import Filter
from isentrope.policy.forward import response_logprob, response_numbers
from isentrope.policy.model import LanguageModel, language_model
from isentrope.policy.sampler import Rollout
from isentrope.policy.vllm_sampler import VllmSampler, checkpoint_tensors, start_vllm
from isentrope.tasks.countdown import Countdown

INSTALLED = find_spec("vllm") is not None

TOLERANCE = 1e-4
"""Largest difference of a token's log-probs in nats, both in float32; 4e-5 was seen."""


def with_vllm(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that needs vLLM, whose import warns of torch's deprecations."""
    for mark in (
        pytest.mark.extra,
        pytest.mark.skipif(not INSTALLED, reason="vllm is not installed"),
        pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
    ):
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def small(tiny: TrainConfig) -> TrainConfig:
    return replace(
        tiny,
        rollout=replace(tiny.rollout, sampler="vllm", rows=64),
        vllm=VllmConfig(gpu_memory_utilization=0.1, enforce_eager=True),
    )


@pytest.fixture(scope="module")
def sampler(small: TrainConfig, model: LanguageModel) -> VllmSampler:
    """One engine for all tests, on a copy of the weights that they may move."""
    return start_vllm(small, language_model(copy.deepcopy(model.network), model.tokenizer))


@pytest.fixture(scope="module")
def prompts(model: LanguageModel) -> list[list[int]]:
    # Problems of three and of four numbers: prompts of different lengths.
    tasks = Countdown(seed=1), Countdown(seed=1, numbers=4)
    return [model.encode(task.train(i).prompt) for i in range(8) for task in tasks]


def draw(
    sampler: VllmSampler,
    prompts: list[list[int]],
    *,
    seed: int = 0,
    temperature: float = 1.0,
    max_new_tokens: int = 16,
    keep: Filter = Filter(),  # noqa: B008  frozen
) -> Rollout:
    return sampler.sample(
        prompts,
        samples=4,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        generator=stream(seed, "test"),
        keep=keep,
    )


def gap(rollout: Rollout) -> float:
    """Largest difference of sampler and trainer, in nats."""
    return (rollout.logprob - rollout.sampler_logprob)[rollout.mask].abs().max().item()


@with_vllm
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_vllm_and_the_trainer_agree_on_every_token(
    sampler: VllmSampler, prompts: list[list[int]], temperature: float
) -> None:
    rollout = draw(sampler, prompts, temperature=temperature)
    assert len(rollout.tokens) == 4 * len(prompts)
    assert gap(rollout) < TOLERANCE
    _, entropy = response_numbers(sampler.model, rollout, 1.0, 16)
    assert torch.allclose(rollout.entropy, entropy, atol=1e-5)


@with_vllm
def test_vllm_follows_the_weights(sampler: VllmSampler, prompts: list[list[int]]) -> None:
    before = draw(sampler, prompts)
    noise = stream(0, "noise")
    with torch.no_grad():
        for parameter in sampler.model.network.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=noise)
    assert gap(draw(sampler, prompts)) > 0.1  # still the old weights
    sampler.refresh()
    after = draw(sampler, prompts)
    assert gap(after) < TOLERANCE
    moved = response_logprob(sampler.model, before, 1.0, 64) - before.logprob
    assert moved[before.mask].abs().max() > 0.1


@with_vllm
def test_the_same_seed_gives_the_same_samples(
    sampler: VllmSampler, prompts: list[list[int]]
) -> None:
    one, again, other = (draw(sampler, prompts, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.tokens, again.tokens)
    assert one.tokens.shape != other.tokens.shape or not torch.equal(one.tokens, other.tokens)
    groups = one.tokens.view(len(prompts), 4, -1)
    assert any(len(group.unique(dim=0)) > 1 for group in groups)  # seeds differ within a group


@with_vllm
def test_responses_end_where_they_should(sampler: VllmSampler, prompts: list[list[int]]) -> None:
    rollout = draw(sampler, prompts)
    last = rollout.tokens.gather(1, rollout.mask.sum(-1, keepdim=True) - 1).squeeze(-1)
    ended = torch.isin(last, sampler.model.eos_ids)
    assert torch.equal(ended, ~rollout.truncated)
    assert ended.any()
    cut = draw(sampler, prompts, max_new_tokens=3)
    assert cut.truncated.all()
    assert cut.mask.all()
    # Any token may be named an end: here the one that most responses have in second place.
    second = int(rollout.tokens[:, 1].mode().values)
    more = replace(sampler.model, eos_ids=torch.tensor([*sampler.model.eos_ids.tolist(), second]))
    short = draw(replace(sampler, model=more), prompts)
    inside = short.mask & (short.tokens == second)
    assert inside.any()
    assert torch.equal(inside.any(-1), inside.gather(1, short.mask.sum(-1, keepdim=True) - 1)[:, 0])


@with_vllm
def test_vllm_filters_as_the_local_sampler_does(
    sampler: VllmSampler, prompts: list[list[int]]
) -> None:
    greedy = draw(sampler, prompts, keep=Filter(top_k=1))
    assert torch.equal(greedy.sampler_logprob[greedy.mask], torch.zeros(int(greedy.mask.sum())))
    half = draw(sampler, prompts, keep=Filter(top_p=0.5))
    share = (half.logprob - half.sampler_logprob)[half.mask].exp()  # probability of the nucleus
    assert share.min() > 0.5 - 1e-4


@with_vllm
def test_a_prompt_that_leaves_no_room_is_refused(sampler: VllmSampler) -> None:
    with pytest.raises(ConfigError, match="together more than the 64 tokens"):
        draw(sampler, [[5] * 60], max_new_tokens=5)


@with_vllm
def test_a_run_learns_from_vllm(
    small: TrainConfig, run: Callable[..., None], tmp_path: Path
) -> None:
    config = replace(
        small,
        steps=20,
        rollout=replace(small.rollout, prompts=32, samples=8, rows=256),
        objective=replace(small.objective, importance_cap=2.0),
        evaluation=replace(small.evaluation, every=20, problems=1),
        # On a CPU the memory of the first engine, which has not ended, counts too.
        vllm=replace(small.vllm, gpu_memory_utilization=0.3),
    )
    run(config, tmp_path / "run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    first, last = (sum(r["reward/mean"] for r in part) / 5 for part in (rows[:5], rows[-5:]))
    assert last > first + 0.02
    for row in rows:
        assert row["mismatch/max"] < TOLERANCE
        assert 0 <= row["mismatch/kl"] < 1e-8
        assert row["mismatch/weight_mean"] == pytest.approx(1, abs=1e-5)
        assert row["mismatch/weight_cut"] == 0


EXPORTED = """
import json, sys
import vllm
engine = vllm.LLM(sys.argv[1], dtype="float32", max_model_len=64, enforce_eager=True,
                  gpu_memory_utilization=0.1, enable_chunked_prefill=False)
options = vllm.SamplingParams(temperature=0, max_tokens=16, logprobs=0)
[answer] = engine.generate([sys.argv[2]], options, use_tqdm=False)[0].outputs
logprobs = [entry[token].logprob for entry, token in zip(answer.logprobs, answer.token_ids)]
print(json.dumps([answer.text, list(answer.token_ids), logprobs]))
"""


@with_vllm
def test_vllm_and_transformers_load_a_checkpoint(
    tiny: TrainConfig, run: Callable[..., None], tmp_path: Path
) -> None:
    run(replace(tiny, steps=2), tmp_path / "run")
    folder, prompt = tmp_path / "run" / "checkpoints" / "step-000002", "3 7 5=16:"
    environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    command = [sys.executable, "-c", EXPORTED, str(folder), prompt]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    text, tokens, logprobs = json.loads(printed.stdout.splitlines()[-1])
    assert text.count("=") == 2  # two steps, as an answer of three numbers has
    network = AutoModelForCausalLM.from_pretrained(folder)
    ids = AutoTokenizer.from_pretrained(folder)(prompt)["input_ids"]
    with torch.no_grad():
        logits = network(torch.tensor([[*ids, *tokens]])).logits[0, len(ids) - 1 : -1]
    expected = logits.log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)]
    assert logprobs == pytest.approx(expected.tolist(), abs=TOLERANCE)


@pytest.mark.skipif(INSTALLED, reason="vllm is installed")
def test_without_vllm_a_run_does_not_begin(
    small: TrainConfig, run: Callable[..., None], tmp_path: Path
) -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'isentrope\[vllm\]'"):
        run(small, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def answer(*tokens: int) -> SimpleNamespace:
    """As vLLM gives it: the n-th token has the probability 1 / (n + 1)."""
    chosen = [{token: SimpleNamespace(logprob=-log(n + 2))} for n, token in enumerate(tokens)]
    return SimpleNamespace(token_ids=tokens, logprobs=chosen)


def test_answers_become_a_rollout(model: LanguageModel) -> None:
    two_ends = replace(model, eos_ids=torch.tensor([1, 9]), pad_id=0)
    sampler = VllmSampler(two_ends, None, 8)
    answers = [answer(5, 6, 1), answer(7, 9), answer(5, 6, 7)]
    rollout = sampler.rollout([[3, 4], [3, 4], [2, 3, 4]], answers)
    assert rollout.prompts.tolist() == [[0, 3, 4], [0, 3, 4], [2, 3, 4]]
    assert rollout.prompt_mask.sum(-1).tolist() == [2, 2, 3]
    assert rollout.tokens.tolist() == [[5, 6, 1], [7, 9, 0], [5, 6, 7]]
    assert rollout.mask.sum(-1).tolist() == [3, 2, 3]
    assert rollout.truncated.tolist() == [False, False, True]
    expected = torch.tensor([1 / 2, 1 / 3, 1 / 4])
    assert torch.allclose(rollout.sampler_logprob[0].exp(), expected)
    assert rollout.sampler_logprob[1, 2] == 0


def test_the_weights_have_the_names_of_the_checkpoint(model: LanguageModel) -> None:
    tensors = dict(checkpoint_tensors(model))
    # embedding, final norm, output layer; of each of 3 layers: 4 attention, 3 MLP, 2 norms
    assert len(tensors) == 3 + 3 * 9
    assert tensors["lm_head.weight"].data_ptr() == tensors["model.embed_tokens.weight"].data_ptr()
    assert not any(tensor.requires_grad for tensor in tensors.values())
