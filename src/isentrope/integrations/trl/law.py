"""The law R = -a exp(H) + b on a run that is still going, for any Hugging Face trainer."""

import logging
from typing import Any

import numpy as np

from isentrope.errors import DataError, require
from isentrope.law.forecast import Forecast, forecast, gain_spent

__all__ = ["LawCallback", "LawMonitor"]

logger = logging.getLogger(__name__)

transformers = require("transformers", "trl")

Pair = tuple[int, float, float]

FEWEST = 8
"""Pairs of entropy and reward below which there is no forecast."""


class LawMonitor:
    """Pairs of entropy and reward as they come, and what the law makes of them."""

    def __init__(self) -> None:
        self.train: list[Pair] = []
        self.evaluation: list[Pair] = []
        self.latest: Forecast | None = None

    @property
    def pairs(self) -> list[Pair]:
        """Those of the evaluations where there are enough: the law is about them."""
        return self.evaluation if len(self.evaluation) >= FEWEST else self.train

    def metrics(self, last_step: int) -> dict[str, float]:
        """The law's numbers for the log. A ceiling and a forecast are there only where it holds."""
        if len(self.pairs) < FEWEST:
            return {}
        steps, entropy, reward = map(np.array, zip(*self.pairs, strict=True))
        result = {"law/points": float(len(steps)), "law/gain_spent": gain_spent(entropy)}
        ahead = max(last_step, int(steps[-1]) + 1)
        try:
            self.latest = forecast(steps, entropy, reward, [ahead])
        except DataError as error:
            logger.info("no law yet: %s", error)
            return {**result, "law/holds": 0.0}
        law = self.latest.law
        result |= {"law/r2": law.r2, "law/holds": float(law.usable)}
        if law.usable:
            result |= {
                "law/ceiling": law.ceiling,
                "forecast/reward": float(self.latest.reward[0]),
                "forecast/low": float(self.latest.low[0]),
                "forecast/high": float(self.latest.high[0]),
                "forecast/gain": self.latest.gain,
            }
        return result


class LawCallback(transformers.TrainerCallback):
    """Fits the law to a trainer's own log and adds `law/...` and `forecast/...` to it.

    Works with every trainer that logs an entropy and a reward, TRL's GRPO and RLOO among them:
    `LawCallback().attach(trainer)`. Pairs come from the evaluations (`eval_entropy`,
    `eval_reward`) once there are 8, until then from the training lines. The forecast is for the
    last step of the run.
    """

    def __init__(
        self, *, entropy_key: str = "entropy", reward_key: str = "reward", every: int = 10
    ) -> None:
        """`every` is the number of new pairs from one fit to the next."""
        self.entropy_key, self.reward_key, self.every = entropy_key, reward_key, every
        self.monitor = LawMonitor()

    def attach(self, trainer: Any) -> "LawCallback":
        """Puts the callback before the trackers, so that they get its numbers too."""
        trainer.callback_handler.callbacks.insert(0, self)
        return self

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Takes the pair of this line; every so often adds the law's numbers to it."""
        if logs is None:
            return
        for start, pairs in (("", self.monitor.train), ("eval_", self.monitor.evaluation)):
            entropy = logs.get(start + self.entropy_key)
            reward = logs.get(start + self.reward_key)
            if entropy is None or reward is None:
                continue
            pairs.append((state.global_step, float(entropy), float(reward)))
            if pairs is self.monitor.pairs and len(pairs) % self.every == 0:
                numbers = self.monitor.metrics(state.max_steps)
                logs.update(numbers)
                if state.log_history:
                    state.log_history[-1].update(numbers)
