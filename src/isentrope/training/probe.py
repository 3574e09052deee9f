"""Entropy change of one step, predicted and measured on the same states."""

from dataclasses import replace

import torch
from torch import Tensor

from isentrope.objective.dynamics import entropy, predicted_change
from isentrope.policy.forward import response_logits
from isentrope.policy.model import LanguageModel
from isentrope.policy.sampler import Rollout

__all__ = ["EntropyProbe"]

ROWS = 8
"""Responses that are read at once: their logits are held as a whole."""


class EntropyProbe:
    """Keeps the policy's distributions at some states, and compares them after the update.

    The prediction is the lemma's, -Cov(log pi, logit change), with the logit change that the
    update really made; the measurement is the difference of the entropies.
    """

    def __init__(
        self, model: LanguageModel, rollout: Rollout, samples: int, max_tokens: int
    ) -> None:
        """The states are response tokens of one sample a prompt, at most `max_tokens` of them:
        of the first responses, or of the beginning of the first."""
        single = rollout.rows(slice(None, None, samples))
        rows = int((single.mask.sum(-1).cumsum(0) <= max_tokens).sum())
        if not rows and max_tokens:
            start = torch.arange(single.mask.shape[1]) < max_tokens
            single, rows = replace(single, mask=single.mask & start), 1
        self.model = model
        self.states = single.rows(slice(rows)).trimmed() if rows else None
        self.logits = self._logits()

    def compare(self) -> dict[str, float]:
        """Mean entropy change per state in nats since the probe was made."""
        if self.states is None:
            return {}
        after = self._logits()
        before = self.logits.log_softmax(-1)
        predicted = predicted_change(before, after - self.logits)
        measured = entropy(after.log_softmax(-1)) - entropy(before)
        return {
            "entropy_change/predicted": predicted.mean().item(),
            "entropy_change/measured": measured.mean().item(),
        }

    @torch.no_grad()
    def _logits(self) -> Tensor:
        """Logits (states, V), of a few responses at a time."""
        states = self.states
        if states is None:
            return torch.empty(0)

        def read(size: int) -> Tensor:
            parts = []
            for start in range(0, len(states.mask), size):
                part = states.rows(slice(start, start + size)).trimmed()
                logits = response_logits(self.model, part)
                parts.append(logits[part.mask.to(logits.device)].float())
            return torch.cat(parts)

        return self.model.training_rows.fit(read, min(ROWS, len(states.mask)))
