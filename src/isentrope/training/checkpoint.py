"""Checkpoints: written aside and renamed, so that one that exists is complete.

A checkpoint is a Hugging Face folder (weights, config, tokenizer) that other software loads,
with the optimizer's state beside; of a model with adapters it has the adapters. Random streams need no saving: see `streams`.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError

from isentrope.errors import DataError
from isentrope.policy.model import LanguageModel

__all__ = ["latest_checkpoint", "load_extra", "load_optimizer", "save_checkpoint"]

OPTIMIZER = "optimizer.pt"


def save_checkpoint(
    folder: Path,
    step: int,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    keep: int,
    extra: Mapping[str, object] | None = None,
    export: Callable[[Path], None] | None = None,
) -> Path:
    """Writes the state after `step` steps, and removes all but the newest `keep` checkpoints.

    `extra` are further states by name, each in a file of its own; `export` writes what else
    belongs into the folder.
    """
    target = folder / f"step-{step:06d}"
    draft = folder / f".{target.name}.part"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        if model.adapters is None:
            model.network.save_pretrained(draft)
        else:
            model.adapters.save_pretrained(str(draft), save_embedding_layers=False)
        model.tokenizer.save_pretrained(draft)
        torch.save(optimizer.state_dict(), draft / OPTIMIZER)
        for name, state in (extra or {}).items():
            torch.save(state, draft / f"{name}.pt")
        if export:
            export(draft)
        draft.replace(target)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        free_mib = shutil.disk_usage(folder).free / 2**20
        raise DataError(
            f"the checkpoint {target} could not be written ({free_mib:.1f} MiB are free there): "
            f"{error}; the run so far is kept: make room and continue it with --resume"
        ) from error
    for old in complete_checkpoints(folder)[:-keep]:
        shutil.rmtree(old)
    return target


def latest_checkpoint(folder: Path) -> tuple[int, Path | None]:
    """The newest checkpoint and its step; step 0 and None where there is none."""
    found = complete_checkpoints(folder)
    return (int(found[-1].name.removeprefix("step-")), found[-1]) if found else (0, None)


def complete_checkpoints(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted(folder.glob("step-*"))


def load_optimizer(optimizer: torch.optim.Optimizer, checkpoint: Path) -> None:
    """Restores the optimizer's state."""
    state = torch.load(checkpoint / OPTIMIZER, weights_only=True, map_location="cpu")
    optimizer.load_state_dict(state)


def load_extra(checkpoint: Path, name: str) -> dict[str, dict[str, torch.Tensor]]:
    """The further state of that name."""
    return torch.load(checkpoint / f"{name}.pt", weights_only=True, map_location="cpu")
