"""builtin:countdown: loads like any other model, and is as good as its model card says."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from isentrope.errors import ConfigError
from isentrope.policy.builtin import builtin_path
from isentrope.tasks.countdown import Countdown


class Generator(Protocol):
    """What the tests ask of a model; the annotations of transformers reject its own models."""

    def generate(self, **options: object) -> torch.Tensor: ...


TASK = Countdown(num_test=128)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(builtin_path("countdown"), local_files_only=True)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    found = AutoModelForCausalLM.from_pretrained(builtin_path("countdown"), local_files_only=True)
    assert isinstance(found, LlamaForCausalLM)
    return found


@pytest.fixture(scope="module")
def generate(model: LlamaForCausalLM) -> Callable[..., torch.Tensor]:
    return cast("Generator", model).generate


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"named 'coutdown'; use one of: builtin:countdown"):
        builtin_path("coutdown")


def test_the_package_stays_small() -> None:
    files = [path for path in Path(builtin_path("countdown")).iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2_000_000


def test_decoding_gives_every_text_back(tokenizer: PreTrainedTokenizerFast) -> None:
    problems = [*TASK.test(), *(TASK.train(index) for index in range(2000))]
    problems += [Countdown(numbers=4).train(index) for index in range(500)]
    texts = [problem.prompt + problem.answer for problem in problems]
    encoded = tokenizer(texts)["input_ids"]
    assert tokenizer.batch_decode(encoded) == texts
    assert tokenizer.unk_token_id not in {token for row in encoded for token in row}


def test_lengths_are_fixed_by_the_count_of_numbers(tokenizer: PreTrainedTokenizerFast) -> None:
    for numbers, prompt, answer in ((3, 8, 11), (4, 10, 17)):
        problems = [Countdown(numbers=numbers).train(index) for index in range(200)]
        assert {len(row) for row in tokenizer([p.prompt for p in problems])["input_ids"]} == {
            prompt
        }
        assert {len(row) for row in tokenizer([p.answer for p in problems])["input_ids"]} == {
            answer
        }


def test_prompt_and_completion_meet_at_a_token_boundary(tokenizer: PreTrainedTokenizerFast) -> None:
    problem = TASK.train(0)
    joined = tokenizer(problem.prompt + problem.answer)["input_ids"]
    parts = tokenizer(problem.prompt)["input_ids"] + tokenizer(problem.answer)["input_ids"]
    assert joined == parts


def test_special_tokens_are_distinct_and_known_to_generation(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    for config in (model.config, model.generation_config):
        assert config.eos_token_id == tokenizer.eos_token_id
        assert config.pad_token_id == tokenizer.pad_token_id
    assert model.generation_config.temperature == 1.0
    assert len(tokenizer) == model.config.vocab_size


def test_weights_are_fp32_and_well_under_two_million(model: LlamaForCausalLM) -> None:
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert sum(parameter.numel() for parameter in model.parameters()) < 500_000


def test_left_padding_changes_nothing(
    generate: Callable[..., torch.Tensor], tokenizer: PreTrainedTokenizerFast
) -> None:
    short = tokenizer("3 7 5=16:", return_tensors="pt")
    padded = tokenizer(["3 7 5=16:", "3 7 5=16:3*7="], return_tensors="pt", padding=True)
    options = {"do_sample": False, "max_new_tokens": 12, "top_k": None, "top_p": None}
    alone = generate(**short, **options)[0, short["input_ids"].shape[1] :]
    beside = generate(**padded, **options)[0, padded["input_ids"].shape[1] :]
    assert alone.tolist() == beside.tolist()


def test_accuracy_is_the_documented_one(
    generate: Callable[..., torch.Tensor], tokenizer: PreTrainedTokenizerFast
) -> None:
    torch.manual_seed(0)
    rows = [problem for problem in TASK.test() for _ in range(8)]
    prompts = tokenizer([p.prompt for p in rows], return_tensors="pt", padding=True)
    written = generate(**prompts, max_new_tokens=16)[:, prompts["input_ids"].shape[1] :]
    texts = tokenizer.batch_decode(written, skip_special_tokens=True)
    scores = torch.tensor([verdict.score for verdict in TASK.verify(rows, texts)]).view(-1, 8)
    assert 0.4 < scores.mean().item() < 0.5
    assert 0.83 < scores.amax(dim=1).mean().item() < 0.95
