"""Checkpoints: written aside and renamed, so that one that exists is complete.

A checkpoint is a Hugging Face folder (weights, config, tokenizer) that other software loads,
with the optimizer's state beside; of a model with adapters it has the adapters. Random streams
need no saving: see `streams`. The checksums of all files are in checksums.json: what is resumed
from is what was written.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError

from isentrope.errors import DataError
from isentrope.policy.model import LanguageModel

__all__ = ["choose_checkpoint", "load_extra", "load_optimizer", "save_checkpoint"]

OPTIMIZER = "optimizer.pt"
CHECKSUMS = "checksums.json"


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
        (draft / CHECKSUMS).write_text(json.dumps(checksums(draft), indent=1) + "\n")
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


def choose_checkpoint(folder: Path, step: int | None = None) -> tuple[int, Path | None]:
    """The checkpoint to go on from, and its step: that of `step`, or the newest.

    Step 0 and None where there is none, or `step` is 0. Those after it are removed. DataError
    where a file of it is not what was written; the message names the newest one that is whole.
    """
    found = {step_of(checkpoint): checkpoint for checkpoint in complete_checkpoints(folder)}
    if step is not None and step not in (0, *found):
        raise DataError(
            f"{folder} has no checkpoint of step {step}; there are {', '.join(map(str, (0, *found)))}"
            " (0 is the start)"
        )
    chosen = max(found, default=0) if step is None else step
    fault = damage(found[chosen]) if chosen else None
    if fault:
        whole = [at for at, other in found.items() if at < chosen and not damage(other)]
        before = max(whole, default=0)
        what = f"the one of step {before} is whole" if before else "there is no whole one before it"
        raise DataError(
            f"the checkpoint {found[chosen]} is damaged: {fault}. Of those before it {what}: go on "
            f"from step {before} with --resume --from-step {before}"
        )
    for at, later in found.items():
        if at > chosen:
            shutil.rmtree(later)
    return chosen, found.get(chosen)


def complete_checkpoints(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted(folder.glob("step-*"), key=step_of)


def step_of(checkpoint: Path) -> int:
    """The steps that a checkpoint is the state after."""
    return int(checkpoint.name.removeprefix("step-"))


def checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in a checkpoint, by its path in there."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != CHECKSUMS:
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def damage(checkpoint: Path) -> str | None:
    """The first file that is not what was written, and how; None where all are."""
    try:
        written: dict[str, str] = json.loads((checkpoint / CHECKSUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"{CHECKSUMS} cannot be read ({error})"
    found = checksums(checkpoint)
    for name, digest in written.items():
        if name not in found:
            return f"{name} is missing"
        if found[name] != digest:
            size = (checkpoint / name).stat().st_size
            return f"{name} ({size} bytes) does not have the checksum that it was written with"
    return None


def load_optimizer(optimizer: torch.optim.Optimizer, checkpoint: Path) -> None:
    """Restores the optimizer's state."""
    state = torch.load(checkpoint / OPTIMIZER, weights_only=True, map_location="cpu")
    optimizer.load_state_dict(state)


def load_extra(checkpoint: Path, name: str) -> dict[str, dict[str, torch.Tensor]]:
    """The further state of that name."""
    return torch.load(checkpoint / f"{name}.pt", weights_only=True, map_location="cpu")
