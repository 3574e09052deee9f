"""Short TRL runs on given responses, for the tests: alone, or under torchrun.

    torchrun --nproc_per_node 2 trl_program.py '[{"out": FILE, "config": {...}}, ...]'

The responses to a prompt are a function of the prompt, so that every division into micro-batches
and ranks trains on the same ones.
"""

# pyright: reportMissingImports=false
# The host library is not in the environment that is type-checked.

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from isentrope.integrations.selection import row_keys
from isentrope.integrations.trl import EntropyGRPOConfig, EntropyGRPOTrainer
from isentrope.integrations.trl.trainer import whole
from isentrope.policy.builtin import builtin_path
from isentrope.tasks.countdown import Countdown

MODEL = str(builtin_path("countdown"))
DATA = Dataset.from_list(
    [{"prompt": (p := Countdown().train(i)).prompt, "answer": p.answer} for i in range(64)]
)


class GivenResponses:
    """Responses to a prompt without sampling: its answer with some symbols changed."""

    processing_class: Any

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        answers = {row["prompt"]: row["answer"] for row in DATA}
        seen: Counter[str] = Counter()
        responses = []
        for ids in prompt_ids:
            prompt = self.processing_class.decode(ids, skip_special_tokens=True)
            seen[prompt] += 1
            draw = random.Random(f"{prompt} {seen[prompt]}")
            text = "".join(
                draw.choice("0123456789+-") if draw.random() < 0.15 else symbol
                for symbol in answers[prompt]
            )
            eos = self.processing_class.eos_token_id
            responses.append([*self.processing_class(text)["input_ids"], eos])
        return responses, None


class Given(GivenResponses, EntropyGRPOTrainer):
    """The trainer under test; it remembers which tokens were selected, by content and place."""

    chosen: dict[int, list[list[int]]]

    def _begin_update(self) -> None:
        super()._begin_update()
        if not hasattr(self, "chosen"):
            self.chosen = {}
        slices = [
            self._buffered_inputs[(self._step + i) % self.args.steps_per_generation]
            for i in range(len(self._window))
        ]
        found = self.chosen.setdefault(self.state.global_step, [])
        for part, (selected, _) in zip(slices, self._window, strict=True):
            keys = row_keys(*whole(part)).tolist()
            found += [[keys[row], place] for row, place in selected.nonzero().tolist()]


class GivenPlain(GivenResponses, trl.GRPOTrainer):
    """TRL's own trainer on the same responses."""


def reward(completions: list[str], **kwargs: Any) -> list[float]:
    """Of little meaning, but the same for the same response."""
    return [float(sum(map(ord, text)) % 3) / 2 for text in completions]


def run(program: dict[str, Any]) -> dict[str, Any]:
    """Trains; the log and the selected tokens of this rank. The first rank saves the weights."""
    torch.set_num_threads(1)
    plain = program.get("plain", False)
    settings = {
        "output_dir": str(Path(program["out"]).with_suffix(".trl")),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_steps": 1,
        "num_generations": 4,
        "max_completion_length": 24,
        "optim": "sgd",
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
        "max_steps": 2,
        "seed": 3,
        **program["config"],
    }
    args = (trl.GRPOConfig if plain else EntropyGRPOConfig)(**settings)
    trainer_class: Any = GivenPlain if plain else Given
    trainer = trainer_class(
        model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(MODEL),
        reward_funcs=reward,
        args=args,
        train_dataset=DATA,
        **({"peft_config": peft()} if program.get("peft") else {}),
    )
    trainer.train(resume_from_checkpoint=program.get("resume"))
    rank = trainer.accelerator.process_index
    model = trainer.accelerator.unwrap_model(trainer.model)
    if rank == 0:
        torch.save({k: v.clone() for k, v in model.state_dict().items()}, program["out"] + ".pt")
    record = {"log": trainer.state.log_history, "chosen": getattr(trainer, "chosen", {})}
    Path(f"{program['out']}.{rank}.json").write_text(json.dumps(record))
    return record


def peft() -> Any:
    """A small adapter on every linear layer."""
    from peft import LoraConfig

    return LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")


if __name__ == "__main__":
    for program in json.loads(sys.argv[1]):
        run(program)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
