"""Three updates of a real verl TrainingWorker (fsdp2) on the CPU with the plug-in, for the tests.

torchrun --nproc_per_node 1 verl_program.py '[{"out": FILE, "loss": NAME, "micro": 4}, ...]'
"""

# pyright: reportMissingImports=false
# The host library is not in the environment that is type-checked.

import json
import os
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tensordict import TensorDict

from isentrope.policy.builtin import builtin_path
from isentrope.tasks.countdown import Countdown

ROWS, PROMPT, WIDTH = 16, 16, 20
MODEL = str(builtin_path("countdown"))


def worker(loss: str, micro: int) -> Any:
    """A TrainingWorker as an actor has it."""
    from verl.trainer.config import CheckpointConfig
    from verl.workers import config
    from verl.workers.engine_workers import ActorRolloutRefWorker
    from verl.workers.utils.losses import ppo_loss

    policy_loss = config.PolicyLossConfig(
        loss_mode=loss,
        clip_cov_ratio=0.05,
        clip_cov_lb=0.1,
        clip_cov_ub=50.0,
        kl_cov_ratio=0.05,
        ppo_kl_coef=2.0,
    )
    actor = config.ActorConfig(
        strategy="fsdp2",
        rollout_n=4,
        ppo_mini_batch_size=ROWS,
        ppo_micro_batch_size_per_gpu=micro,
        clip_ratio_low=1.0,
        clip_ratio_high=1.0,
        policy_loss=policy_loss,
    )
    model = config.HFModelConfig(
        path=MODEL, use_remove_padding=False, enable_gradient_checkpointing=False
    )
    model.hf_config._attn_implementation = "eager"
    made = ActorRolloutRefWorker.actor_worker_cls(
        config=config.TrainingWorkerConfig(
            model_type="language_model",
            model_config=model,
            engine_config=config.FSDPEngineConfig(
                strategy="fsdp2",
                use_torch_compile=False,
                use_dynamic_bsz=False,
                micro_batch_size_per_gpu=micro,
                max_token_len_per_gpu=4096,
                dtype="float32",
                mixed_precision={"param_dtype": "fp32", "reduce_dtype": "fp32"},
            ),
            optimizer_config=config.FSDPOptimizerConfig(
                lr=0.01, optimizer="SGD", total_training_steps=10, clip_grad=1.0
            ),
            checkpoint_config=CheckpointConfig(),
        )
    )
    made.reset()
    made.set_loss_fn(partial(ppo_loss, config=actor))
    return made


def batch(first: int, last: int) -> Any:
    """Rows of the mini-batch in verl's layout."""
    from verl.workers.utils.padding import left_right_2_no_padding

    rows = {name: values[first:last].clone() for name, values in columns().items()}
    return left_right_2_no_padding(TensorDict(rows, batch_size=last - first))


@cache
def columns() -> dict[str, torch.Tensor]:
    """A mini-batch of given responses, old log-probabilities included."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    ids = torch.zeros(ROWS, PROMPT + WIDTH, dtype=torch.long)
    attention = torch.zeros_like(ids)
    for row in range(ROWS):
        problem = Countdown().train(row // 4)
        prompt = tokenizer(problem.prompt)["input_ids"]
        answer = tokenizer(problem.answer)["input_ids"] + [tokenizer.eos_token_id]
        answer = answer[: len(answer) - row % 4]
        ids[row, PROMPT - len(prompt) : PROMPT + len(answer)] = torch.tensor(prompt + answer)
        attention[row, PROMPT - len(prompt) : PROMPT + len(answer)] = 1
    mask = attention[:, PROMPT:]
    positions = (attention.cumsum(-1) - 1).clamp(min=0)
    network = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    with torch.no_grad():
        logits = network(ids, attention_mask=attention, position_ids=positions).logits
    logprob = logits.log_softmax(-1)[:, PROMPT - 1 : -1].gather(-1, ids[:, PROMPT:, None])[..., 0]
    draw = torch.Generator().manual_seed(0)
    noise = 0.1 * torch.randn(mask.shape, generator=draw)  # so that the batch is off policy
    advantages = torch.randn(ROWS, 1, generator=draw).expand(mask.shape) * mask
    return {
        "prompts": ids[:, :PROMPT],
        "responses": ids[:, PROMPT:],
        "input_ids": ids,
        "attention_mask": attention,
        "position_ids": positions,
        "response_mask": mask,
        "old_log_probs": (logprob + noise) * mask,
        "advantages": advantages,
    }


def run(program: dict[str, Any]) -> None:
    """Three updates on the same mini-batch; with `rollouts`, in as many rollouts, and from the
    checkpoint of the second one if it is to be resumed."""
    from verl.utils import tensordict_utils

    made = worker(program["loss"], program["micro"])
    rank, ranks = dist.get_rank(), dist.get_world_size()
    share = ROWS // ranks
    log = []
    for number in range(3):
        if program.get("resume") and number == 2:
            made = worker(program["loss"], program["micro"])
            made.load_checkpoint(program["out"] + ".checkpoint")
        data = batch(rank * share, (rank + 1) * share)
        tensordicts = {"global_batch_size": ROWS, "temperature": 1.0, "calculate_entropy": True}
        tensordict_utils.assign_non_tensor(data, **tensordicts)
        if program.get("rollouts"):
            tensordict_utils.assign_non_tensor(data, mini_batch_size=ROWS)
            output = made.train_mini_batch(data)
        else:
            output = made.train_batch(data)
        if program.get("resume") and number == 1:
            made.save_checkpoint(program["out"] + ".checkpoint", global_step=number)
        metrics = tensordict_utils.get(output, "metrics")
        log.append({name: plain(value) for name, value in metrics.items()})
    weights = {}
    for name, value in made.engine.module.state_dict().items():
        weights[name] = value.full_tensor() if hasattr(value, "full_tensor") else value
    if rank == 0:
        torch.save(weights, program["out"] + ".pt")
        Path(program["out"] + ".json").write_text(json.dumps(log))


def plain(value: Any) -> Any:
    """Numbers of a metric."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value if isinstance(value, int | float) else str(value)


def entropy() -> tuple[float, float]:
    """Mean of -log p over the tokens of the mini-batch, and over responses of its means."""
    rows = columns()
    mask, values = rows["response_mask"].double(), -rows["old_log_probs"].double()
    means = (values * mask).sum(-1) / mask.sum(-1)
    return float((values * mask).sum() / mask.sum()), float(means.mean())


if __name__ == "__main__":
    os.environ.update(
        VERL_PLATFORM="cpu",
        VERL_ENGINE_DEVICE="cuda",
        VERL_USE_EXTERNAL_MODULES="verl_cpu,isentrope.integrations.verl",
        RAY_AUTH_MODE="disabled",
    )
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for item in json.loads(sys.argv[1]):
        run(item)
    dist.destroy_process_group()
