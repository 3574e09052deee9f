"""What is wrong with a run while it goes, from the lines that it logs: said once, with what to change."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from isentrope.config import TrainConfig

__all__ = ["Health"]

WINDOW = 5
"""Steps in a row that a finding needs."""

TRUNCATED = 0.9  # share of the responses
EXPLODED, EXPLODED_BY = 3.0, 0.5  # times the first entropy, and nats above it
LOST = 0.1  # of the best reward so far is left

Row = Mapping[str, float]


@dataclass(slots=True)
class Health:
    """Looks at each step and each evaluation of a run; `found` are the findings so far."""

    config: TrainConfig
    found: dict[str, str] = field(default_factory=dict)
    last: deque[Row] = field(default_factory=lambda: deque(maxlen=WINDOW))
    first_entropy: float | None = None
    best: float = 0.0
    """The highest mean reward of WINDOW steps."""
    evaluations: list[Mapping[str, float | str]] = field(default_factory=list)

    def step(self, metrics: Row) -> list[str]:
        """The findings that are new with this step."""
        self.last.append(metrics)
        if self.first_entropy is None:
            self.first_entropy = metrics["entropy/token_mean"]
        if len(self.last) < WINDOW:
            return []
        reward = self.mean("reward/mean")
        self.best = max(self.best, reward)
        checks = {
            "no signal": self.no_signal(),
            "cut": self.cut(),
            "explosion": self.explosion(),
            "lost": self.lost(reward),
        }
        new = {name: text for name, text in checks.items() if text and name not in self.found}
        self.found |= new
        return list(new.values())

    def evaluation(self, row: Mapping[str, float | str]) -> None:
        """Takes an evaluation."""
        self.evaluations.append(row)

    def verdict(self) -> str:
        """What the last line of a run says of it: its findings, or how its accuracy changed."""
        if self.found:
            return f"done, but {'; '.join(self.found)}: see the notes above"
        if len(self.evaluations) < 2:
            return "done"
        first, last = self.evaluations[0], self.evaluations[-1]
        k, start, end = last["k"], float(first["reward/avg"]), float(last["reward/avg"])
        if end < float(first["reward/avg_low"]):
            return f"done, but avg@{k} fell from {start:.3f} to {end:.3f}"
        return f"done, avg@{k} {start:.3f} > {end:.3f}"

    def mean(self, key: str) -> float:
        """Over the last steps."""
        return fmean(row[key] for row in self.last)

    def no_signal(self) -> str:
        """No group to learn from."""
        if any(row["groups/used"] for row in self.last):
            return ""
        right, wrong = self.mean("groups/all_right"), self.mean("groups/all_wrong")
        advice = (
            "all responses are right: take harder problems"
            if right > wrong
            else "look at samples and reward, take easier problems or raise rollout.samples"
        )
        return (
            f"in {WINDOW} steps no group had responses of different reward, so nothing was learnt "
            f"({right:.0%} of the groups all right, {wrong:.0%} all wrong): {advice}"
        )

    def cut(self) -> str:
        """Responses end at the limit and not by themselves."""
        share, limit = self.mean("truncated"), self.config.rollout.max_new_tokens
        if share < TRUNCATED:
            return ""
        return (
            f"{share:.0%} of the responses were cut at rollout.max_new_tokens = {limit} before they "
            f"ended: try {2 * limit}, or a prompt that asks for less"
        )

    def explosion(self) -> str:
        """Entropy far above where it began."""
        start, now = self.first_entropy or 0.0, self.mean("entropy/token_mean")
        if now < max(EXPLODED * start, start + EXPLODED_BY):
            return ""
        return (
            f"entropy rose from {start:.3f} to {now:.3f} nats: the policy falls apart. Go back with "
            "--resume --from-step N, with a smaller optimizer.learning_rate "
            f"({self.config.optimizer.learning_rate:g}) or entropy bonus in a new run"
        )

    def lost(self, reward: float) -> str:
        """The reward is gone."""
        if self.best <= 0 or reward > LOST * self.best:
            return ""
        return (
            f"the mean reward fell from {self.best:.3f} to {reward:.3f}: the policy has lost what it "
            f"could do. Try a smaller optimizer.learning_rate than {self.config.optimizer.learning_rate:g}"
        )
