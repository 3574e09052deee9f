from math import log

import pytest
import torch

from isentrope.config import ModelConfig
from isentrope.objective.streams import stream
from isentrope.policy.forward import response_logits, response_stats
from isentrope.policy.model import LanguageModel, load_model
from isentrope.policy.sampler import Rollout, draw, sample
from isentrope.tasks.countdown import Countdown


def rollout_of(model: LanguageModel, texts: list[str], **options: float) -> Rollout:
    settings = {"samples": 4, "temperature": 1.0, "max_new_tokens": 16, "rows": 1024, **options}
    return sample(
        model,
        [model.encode(text) for text in texts],
        samples=int(settings["samples"]),
        temperature=settings["temperature"],
        max_new_tokens=int(settings["max_new_tokens"]),
        generator=stream(0, "test"),
        rows=int(settings["rows"]),
    )


@pytest.fixture(scope="module")
def texts() -> list[str]:
    # Problems of three and of four numbers: prompts of different lengths.
    three, four = Countdown(seed=1), Countdown(seed=1, numbers=4)
    return [task.train(i).prompt for i in range(4) for task in (three, four)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampling_and_training_agree_on_every_token(
    model: LanguageModel, texts: list[str], temperature: float
) -> None:
    rollout = rollout_of(model, texts, temperature=temperature)
    with torch.no_grad():
        again = response_stats(model, rollout, temperature)
        entropy = response_stats(model, rollout, 1.0).entropy  # logged at temperature 1
    mask = rollout.mask
    assert torch.allclose(again.logprob[mask], rollout.logprob[mask], atol=2e-4)
    assert torch.allclose(entropy[mask], rollout.entropy[mask], atol=2e-4)


def test_the_number_of_rows_at_once_changes_no_sample(
    model: LanguageModel, texts: list[str]
) -> None:
    whole, parts = rollout_of(model, texts), rollout_of(model, texts, rows=8)
    assert torch.equal(whole.tokens * whole.mask, parts.tokens * parts.mask)


def test_prompts_of_like_length_are_sampled_together(model: LanguageModel) -> None:
    prompts = [model.encode(text) for text in ("3 5=8:", "3 5 7 9=24:", "2 4=6:", "1 2 3=6:")]
    lengths = [len(prompt) for prompt in prompts]
    parts: list[tuple[Rollout, list[int]]] = []
    whole = sample(
        model,
        prompts,
        samples=3,
        temperature=1.0,
        max_new_tokens=6,
        generator=stream(0, "lengths"),
        rows=6,
        on_part=lambda part, numbers: parts.append((part, list(numbers))),
    )
    assert lengths[1] > lengths[3] > lengths[0] == lengths[2]
    assert [numbers for _, numbers in parts] == [[1, 3], [0, 2]]
    for part, numbers in parts:
        assert part.prompts.shape[1] == max(lengths[number] for number in numbers)
        assert part.prompt_mask.sum(-1).tolist() == [lengths[n] for n in numbers for _ in range(3)]
        for place, number in enumerate(numbers):
            mine, theirs = slice(3 * place, 3 * place + 3), slice(3 * number, 3 * number + 3)
            width = min(part.tokens.shape[1], whole.tokens.shape[1])
            kept = whole.mask[theirs, :width]
            assert torch.equal(part.mask[mine, :width], kept)
            assert torch.equal(part.tokens[mine, :width][kept], whole.tokens[theirs, :width][kept])


def test_padding_of_the_prompt_changes_no_number(model: LanguageModel, texts: list[str]) -> None:
    rollout = rollout_of(model, texts)
    wider = Rollout(
        prompts=torch.nn.functional.pad(rollout.prompts, (5, 0), value=model.pad_id),
        prompt_mask=torch.nn.functional.pad(rollout.prompt_mask, (5, 0)),
        tokens=rollout.tokens,
        mask=rollout.mask,
        logprob=rollout.logprob,
        sampler_logprob=rollout.sampler_logprob,
        entropy=rollout.entropy,
        truncated=rollout.truncated,
    )
    with torch.no_grad():
        narrow, wide = response_logits(model, rollout), response_logits(model, wider)
    assert torch.allclose(narrow[rollout.mask], wide[rollout.mask], atol=1e-4)


def test_a_response_ends_with_the_first_end_of_sequence(
    model: LanguageModel, texts: list[str]
) -> None:
    rollout = rollout_of(model, texts)
    last = rollout.tokens.gather(1, rollout.mask.sum(-1, keepdim=True) - 1).squeeze(-1)
    ended = torch.isin(last, model.eos_ids)
    assert torch.equal(ended, ~rollout.truncated)
    assert ended.any()
    cut = rollout_of(model, texts, max_new_tokens=3)
    assert cut.truncated.all()
    assert cut.mask.all()


def test_tokens_come_with_their_probability() -> None:
    logits = torch.tensor([[2.0, 0.0, -torch.inf, 1.0]]).expand(20_000, 4)
    uniform = torch.rand(20_000, generator=stream(0, "uniform"))
    chosen = draw(logits, uniform, temperature=2.0).tokens
    expected = (logits[0] / 2).softmax(-1)
    observed = torch.bincount(chosen, minlength=4) / 20_000
    assert observed[2] == 0
    assert torch.allclose(observed, expected, atol=0.01)


def test_a_draw_and_its_numbers() -> None:
    logits = torch.log(torch.tensor([[2.0, 1.0, 1.0]])).repeat(4, 1)  # 1/2, 1/4, 1/4
    drawn = draw(logits, torch.tensor([0.0, 0.49, 0.51, 0.99]), 1.0)
    assert drawn.tokens.tolist() == [0, 0, 1, 2]
    assert drawn.logprob.exp().tolist() == pytest.approx([0.5, 0.5, 0.25, 0.25])
    assert drawn.entropy.tolist() == pytest.approx([1.5 * log(2)] * 4)
    # At temperature 1/2 they are 2/3, 1/6, 1/6; entropy and the full log-prob are those of 1.
    drawn = draw(logits, torch.tensor([0.6, 0.6, 0.7, 0.9]), 0.5)
    assert drawn.tokens.tolist() == [0, 0, 1, 2]
    assert drawn.logprob.exp().tolist() == pytest.approx([2 / 3, 2 / 3, 1 / 6, 1 / 6])
    assert drawn.full_logprob.exp().tolist() == pytest.approx([0.5, 0.5, 0.25, 0.25])
    assert drawn.entropy.tolist() == pytest.approx([1.5 * log(2)] * 4)
    greedy = draw(logits, torch.full((4,), 0.99), 0.0)
    assert greedy.tokens.tolist() == [0, 0, 0, 0]
    assert greedy.logprob.tolist() == [0, 0, 0, 0]  # there is no other choice
    assert greedy.full_logprob.exp().tolist() == pytest.approx([0.5] * 4)


def test_an_extreme_draw_never_gives_an_impossible_token() -> None:
    logits = torch.tensor([[0.0, 0.0, -torch.inf], [-torch.inf, 0.0, 0.0]])
    top = draw(logits, torch.full((2,), 1 - 2**-24), temperature=1.0).tokens
    bottom = draw(logits, torch.zeros(2), temperature=1.0).tokens
    assert top.tolist() == [1, 2]
    assert bottom.tolist() == [0, 1]


def test_streams_are_told_apart_and_repeat() -> None:
    draws = [
        torch.rand(1, generator=stream(*key)).item()
        for key in [(0, "a", 0), (0, "a", 1), (0, "b", 0), (1, "a", 0), (0, "a", 0)]
    ]
    assert len(set(draws)) == 4
    assert draws[0] == draws[4]


@pytest.mark.parametrize("path", ["builtin:nothing", "no/such/folder", "no-such.gguf"])
def test_a_model_that_is_not_there(path: str) -> None:
    with pytest.raises(ValueError, match=r"builtin:countdown|no such file"):
        load_model(ModelConfig(path=path))
