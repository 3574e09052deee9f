"""Random streams: one seed, many independent generators, each found by name and step.

A stream is a function of (seed, name, step), so nothing about it has to be saved: a resumed run
draws what the uninterrupted run would have drawn.
"""

from hashlib import blake2b

import torch

__all__ = ["stream"]


def stream(seed: int, name: str, step: int = 0) -> torch.Generator:
    """The CPU generator of that name at that step."""
    digest = blake2b(f"{seed} {name} {step}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
