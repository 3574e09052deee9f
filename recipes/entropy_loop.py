"""The whole method in one file: sample, score, select by covariance, update, fit the law.

    python recipes/entropy_loop.py [steps]

It trains builtin:countdown with KL-Cov and prints entropy H and reward R, step by step, with the
numbers of `isentrope train recipes/countdown-kl-cov.toml` (a test compares them). Left out, and in
the library: KV cache, micro-batches, other losses and advantages, evaluation on held-out problems,
checkpoints, GPU.
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from isentrope.law.fit import fit_law
from isentrope.objective.streams import stream
from isentrope.policy.builtin import builtin_path
from isentrope.tasks.countdown import Countdown

PROMPTS, SAMPLES, LENGTH, MINI_BATCHES, LEARNING_RATE = 64, 8, 16, 4, 2e-4
KL_FRACTION, KL_COEFFICIENT = 0.1, 2.0

torch.set_num_threads(1)
task = Countdown(seed=0)
folder = builtin_path("countdown")
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder).eval()
optimizer = torch.optim.AdamW(
    model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0
)


def distributions(tokens: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
    """log pi (rows, tokens, vocabulary) after each token; prompts are padded on the left."""
    positions = (attention.cumsum(-1) - 1).clamp(min=0)
    logits = model(input_ids=tokens, attention_mask=attention, position_ids=positions).logits
    return logits.log_softmax(-1)


def train_step(step: int) -> tuple[float, float]:
    """One rollout and its updates; returns the entropy and the reward before them."""
    # 1. Sample: every response has its own random numbers, drawn by inverting the distribution.
    problems = [task.train(step * PROMPTS + i) for i in range(PROMPTS)]
    prompts = tokenizer(
        [p.prompt for p in problems], padding=True, padding_side="left", return_tensors="pt"
    )
    tokens = prompts["input_ids"].repeat_interleave(SAMPLES, 0)
    attention = prompts["attention_mask"].repeat_interleave(SAMPLES, 0)
    start = tokens.shape[1]
    draws = torch.rand(len(tokens), LENGTH, generator=stream(0, "sampling", step))
    with torch.no_grad():
        for t in range(LENGTH):
            cumulative = distributions(tokens, attention)[:, -1].exp().cumsum(-1)
            chosen = torch.searchsorted(cumulative, draws[:, t : t + 1] * cumulative[:, -1:])
            tokens = torch.cat([tokens, chosen], -1)
            attention = torch.cat([attention, torch.ones_like(chosen)], -1)
        log_pi = distributions(tokens, attention)[:, start - 1 : -1]
    responses = tokens[:, start:]
    ended = (responses == tokenizer.eos_token_id).cumsum(-1)
    mask = ended - (responses == tokenizer.eos_token_id).int() == 0  # up to the first end
    attention[:, start:] = mask
    old = log_pi.gather(-1, responses[..., None])[..., 0]
    entropy = -(log_pi.exp() * log_pi).sum(-1)  # of the whole vocabulary, at each token

    # 2. Score, and compare with the group: A = (r - mean) / standard deviation (GRPO).
    texts = [
        tokenizer.decode(r[m], skip_special_tokens=True)
        for r, m in zip(responses, mask, strict=True)
    ]
    verdicts = task.verify([p for p in problems for _ in range(SAMPLES)], texts)
    reward = torch.tensor([v.score for v in verdicts]).view(PROMPTS, SAMPLES)
    advantage = (reward - reward.mean(-1, keepdim=True)) / (reward.std(-1, keepdim=True) + 1e-6)
    advantage = advantage.view(-1, 1).expand(mask.shape)
    group = torch.arange(PROMPTS).repeat_interleave(SAMPLES)

    # 3. Groups of equal rewards say nothing; the others are dealt into mini-batches.
    useful = (reward.std(-1) > 0).nonzero()[:, 0]
    useful = useful[torch.randperm(len(useful), generator=stream(0, "order", step))]
    for number, hand in enumerate(torch.tensor_split(useful, MINI_BATCHES)):
        rows = torch.isin(group, hand)
        m, a, o = mask[rows], advantage[rows], old[rows]
        # 4. Covariance of each token over the whole mini-batch, and its largest KL_FRACTION.
        covariance = (o - o[m].mean()) * (a - a[m].mean())
        top = covariance[m].topk(int(KL_FRACTION * m.sum())).indices
        penalised = torch.zeros(int(m.sum()))
        penalised[top] = 1.0
        # 5. The loss: -ratio A, and |log ratio| where the covariance is largest.
        log_pi = distributions(tokens[rows], attention[rows])[:, start - 1 : -1]
        new = log_pi.gather(-1, responses[rows][..., None])[..., 0][m]
        log_ratio = new - (new.detach() if number == 0 else o[m])  # first: still on policy
        loss = -log_ratio.exp() * a[m] + KL_COEFFICIENT * penalised * log_ratio.abs()
        optimizer.zero_grad()
        loss.mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    per_response = torch.where(mask, entropy, 0.0).sum(-1) / mask.sum(-1)
    return per_response.mean().item(), reward.mean().item()


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    history = []
    for step in range(steps):
        history.append(train_step(step))
        print(f"step {step:4}  H {history[-1][0]:.4f}  R {history[-1][1]:.4f}", flush=True)
    if steps > 2:
        # 6. The law R = -a e^H + b. It describes runs whose entropy is left alone, so with
        # KL-Cov it is only a summary; set KL_COEFFICIENT to 0 to see it hold.
        law = fit_law(*zip(*history, strict=True))
        print(f"R = -{law.a:.3f} e^H + {law.b:.3f}, R2 {law.r2:.2f}: {law.verdict}, {law.reason}")
