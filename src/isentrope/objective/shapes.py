"""The vocabulary of shapes used in annotations.

    B  sequences (prompt x sample)     T  response tokens, right-padded
    V  vocabulary                      G  samples of one prompt (a group)
    D  hidden width                    N  tokens of a packed batch

Log-probabilities and entropies are natural: nats. `mask` is True at the tokens that count.
"""

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

__all__ = [
    "GroupIds",
    "PerSequence",
    "PerToken",
    "Rewards",
    "Scalar",
    "TokenIds",
    "TokenMask",
]

PerToken = Float[Tensor, "B T"]
PerSequence = Float[Tensor, " B"]
Rewards = Shaped[Tensor, " B"]
"""Of any number type, booleans too."""
GroupIds = Int[Tensor, " B"]
TokenIds = Int[Tensor, "B T"]
TokenMask = Bool[Tensor, "B T"]
Scalar = Float[Tensor, ""]
