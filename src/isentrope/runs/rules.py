"""What the keys of each framework mean, as data: a new framework is a new entry, not new code.

A framework is recognised by a key that only it writes; the more particular ones come first. Its
rules are tried in order, and their order is the order of preference. Sources are the frameworks'
own code; the key names are theirs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from isentrope.runs.record import Meaning, Role

__all__ = ["FRAMEWORKS", "Framework", "framework_of", "meaning_of"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern for whole keys and what they mean; groups `source` and `k` fill the meaning in."""

    pattern: str
    meaning: Meaning


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """The keys of one framework."""

    name: str
    sign: str
    """A pattern that some key of each of its logs matches, and no other framework's."""
    rules: tuple[Rule, ...]
    without_entropy: str = ""
    """How to switch the entropy on where a log of this framework has none."""


def entropy(
    pattern: str,
    lag: int | None,
    aggregation: str,
    *,
    kind: str = "full",
    temperature: str = "sampling",
    note: str = "",
) -> Rule:
    """A rule for an entropy on training prompts."""
    meaning = Meaning(
        role="entropy",
        kind=kind,
        aggregation=aggregation,
        temperature=temperature,
        lag=lag,
        note=note,
    )
    return Rule(pattern, meaning)


def entropy_on_validation(
    pattern: str, aggregation: str, *, temperature: str = "sampling", lag: int | None = 0
) -> Rule:
    """A rule for an entropy on validation prompts."""
    rule = entropy(pattern, lag, aggregation, temperature=temperature)
    return Rule(pattern, replace(rule.meaning, population="validation"))


def reward(role: Role, pattern: str, lag: int | None, metric: str = "mean", note: str = "") -> Rule:
    """A rule for a reward; the metric may name the group k."""
    population = "train" if role == "train" else "validation"
    meaning = Meaning(role=role, metric=metric, population=population, lag=lag, note=note)
    return Rule(pattern, meaning)


BEFORE, AFTER, UNKNOWN = -1, 0, None  # the policy version is step + this

DURING = "averaged over the mini-batches of the update"
VERL_ORDER = "verl before June 2025 mixed up the rows under use_dynamic_bsz=True: check the version"

FRAMEWORKS = (
    Framework(
        name="isentrope",
        sign=r"entropy/sequence_mean|eval/.+/entropy/sequence_mean",
        rules=(
            entropy(r"entropy/sequence_mean", AFTER, "sequence mean", temperature="1"),
            entropy(r"entropy/token_mean", AFTER, "token mean", temperature="1"),
            entropy_on_validation(
                r"eval/(?P<source>.+)/entropy/sequence_mean", "sequence mean", temperature="1"
            ),
            entropy_on_validation(
                r"eval/(?P<source>.+)/entropy/token_mean", "token mean", temperature="1"
            ),
            Rule(r"(.+/)?entropy_change/(predicted|measured)", Meaning(role="other")),
            reward("train", r"reward/mean", AFTER),
            reward("validation", r"eval/(?P<source>.+)/reward/avg", AFTER, "avg"),
            reward("pass@k", r"eval/(?P<source>.+)/reward/pass@(?P<k>\d+)", AFTER, "pass@{k}"),
        ),
    ),
    Framework(
        name="verl fork of the entropy mechanism paper",
        sign=r"train_entropy/.+",
        rules=(
            entropy(r"train_entropy/all", BEFORE, "sequence mean", temperature="1"),
            entropy(r"train_entropy/.+", BEFORE, "sequence mean", temperature="1"),
            entropy_on_validation(r"test_entropy/all", "sequence mean", temperature="1"),
            entropy_on_validation(r"test_entropy/(?P<source>.+)", "sequence mean", temperature="1"),
            entropy(r"actor/entropy(_loss)?", BEFORE, "token mean", note=VERL_ORDER),
            reward("train", r"critic/rewards/mean", BEFORE),
            reward(
                "validation",
                r"val-core/(?P<source>.+)/(?:acc|reward|score)/mean@(?P<k>\d+)",
                AFTER,
                "mean@{k}",
            ),
            reward("validation", r"val/score-(?P<source>all)", AFTER, note="mixes the data sets"),
            reward(
                "pass@k",
                r"val-(?:core|aux)/(?P<source>.+)/(?:acc|reward|score)/best@(?P<k>\d+)/mean",
                AFTER,
                "best@{k}",
            ),
        ),
    ),
    Framework(
        name="ROLL",
        sign=r"critic/entropy/mean|val_correct/.+",
        rules=(
            entropy(r"critic/entropy/mean", UNKNOWN, "token mean"),
            reward("train", r"critic/(?:score|rewards)/mean", UNKNOWN),
            reward("validation", r"val_correct/(?P<source>all)/mean", UNKNOWN),
            reward("validation", r"val_correct/(?P<source>.+)/mean", UNKNOWN),
        ),
    ),
    Framework(
        name="SkyRL",
        sign=r"policy/policy_entropy|eval/.+/avg_score|reward/avg_raw_reward",
        rules=(
            entropy(
                r"policy/policy_entropy",
                BEFORE,
                "token mean",
                note="before August 2026 a mean of the means of shards; " + DURING,
            ),
            reward("train", r"reward/avg_raw_reward", BEFORE),
            reward("validation", r"eval/(?P<source>.+)/avg_score", AFTER, "avg_score"),
            reward("pass@k", r"eval/(?P<source>.+)/pass_at_(?P<k>\d+)", AFTER, "pass@{k}"),
        ),
    ),
    Framework(
        name="NeMo-RL",
        sign=r"(?:train/)?approx_entropy|validation/accuracy",
        rules=(
            entropy(r"(?:train/)?full_entropy", BEFORE, "token mean", note=DURING),
            entropy(
                r"(?:train/)?approx_entropy",
                BEFORE,
                "token mean",
                kind="is_nll",
                note="an importance-weighted estimate from the sampled tokens; " + DURING,
            ),
            reward("train", r"(?:train/)?reward", BEFORE),
            reward("validation", r"(?P<source>validation)/accuracy", AFTER, "accuracy"),
            reward("pass@k", r"(?P<source>validation)/pass_(?P<k>\d+|k)", AFTER, "pass@{k}"),
        ),
    ),
    Framework(
        name="prime-rl",
        sign=r"entropy/.+/mean|eval/.+/avg@\d+",
        rules=(
            entropy(r"entropy/all/mean", UNKNOWN, "token mean"),
            entropy(r"entropy/.+/mean", UNKNOWN, "token mean"),
            reward("train", r"(?:train/)?(?:all/)?reward/(?:all/)?mean", UNKNOWN),
            reward("train", r"train/.*reward/(?:all/)?mean", UNKNOWN),
            reward(
                "validation",
                r"eval/(?P<source>[^/]+)/(?:all/)?(?:(?!effective/|all/)[^/]+/)?avg@(?P<k>\d+)",
                UNKNOWN,
                "avg@{k}",
            ),
            reward(
                "pass@k",
                r"eval/(?P<source>[^/]+)/(?:all/)?(?:(?!effective/|all/)[^/]+/)?pass@(?P<k>\d+)",
                UNKNOWN,
                "pass@{k}",
            ),
        ),
        without_entropy="take the trainer's metrics.jsonl, not the orchestrator's",
    ),
    Framework(
        name="ms-swift",
        sign=r"(?:train/)?entropy/(?:mean|max|min|threshold)",
        rules=(
            entropy(r"(?:train/)?entropy/mean", BEFORE, "sequence mean"),
            reward("train", r"(?:train/)?reward", BEFORE),
            reward("validation", r"(?P<source>eval)[_/]reward", AFTER),
        ),
        without_entropy="run with --log_entropy true",
    ),
    Framework(
        name="slime",
        sign=r"rollout/raw_reward|rollout/entropy|eval/.+-truncated_ratio",
        rules=(
            entropy(r"train/entropy_loss", UNKNOWN, "sequence mean", note=DURING),
            entropy(r"rollout/entropy", UNKNOWN, "sequence mean"),
            reward("train", r"rollout/raw_reward", UNKNOWN),
            reward("pass@k", r"eval/(?P<source>.+)-pass@(?P<k>\d+)", UNKNOWN, "pass@{k}"),
            reward(
                "validation",
                r"eval/(?!step$)(?P<source>(?:(?!-truncated_ratio|/|-pass@|response_len).)+)",
                UNKNOWN,
            ),
        ),
        without_entropy="run with --use-rollout-entropy",
    ),
    Framework(
        name="OpenRLHF",
        sign=r"eval/eval_.+_pass\d+|(?:train/)?(?:policy_loss|rollout/reward_mean)",
        rules=(
            entropy(
                r"(?:train/)?(?:entropy_loss|ent_loss)",
                BEFORE,
                "token mean",
                temperature="unknown",
                note="not divided by the sampling temperature before September 2026; " + DURING,
            ),
            reward("train", r"(?:train/)?(?:rollout/reward_mean|reward)", BEFORE),
            reward("validation", r"eval/eval_(?P<source>.+)_pass1", AFTER, "pass@1"),
            reward("pass@k", r"eval/eval_(?P<source>.+)_pass(?P<k>\d+)", AFTER, "best@{k}"),
        ),
        without_entropy="set --entropy_coef (0 is allowed): without it no entropy is computed",
    ),
    Framework(
        name="open-instruct",
        sign=r"eval/pass_at_\d+.*|eval/scores|val/.*_kl.*|objective/verifiable_.+",
        rules=(
            entropy(
                r"policy/entropy_avg", UNKNOWN, "token mean", note="0 where not recorded; " + DURING
            ),
            entropy(r"objective/entropy", UNKNOWN, "token mean", kind="unknown"),
            reward("train", r"(?:objective/)?(?:verifiable_correct_rate|scores)", UNKNOWN),
            reward("validation", r"(?P<source>eval)/pass_at_1", UNKNOWN, "pass@1"),
            reward("validation", r"(?P<source>eval)/scores", UNKNOWN),
            reward(
                "pass@k", r"(?P<source>eval)/pass_at_(?P<k>\d+)(?:_unbiased)?", UNKNOWN, "pass@{k}"
            ),
        ),
        without_entropy="run with --record_entropy",
    ),
    Framework(
        name="verl",
        sign=r"actor/(?:pg_loss|entropy|entropy_loss|grad_norm)|critic/(?:score|rewards)/mean"
        r"|val-core/.+|val/test_score/.+",
        rules=(
            entropy(r"actor/entropy", BEFORE, "token mean"),
            entropy(r"actor/entropy_loss", BEFORE, "token mean", note=f"{DURING}; {VERL_ORDER}"),
            reward("train", r"critic/rewards/mean", BEFORE),
            reward("train", r"critic/score/mean", BEFORE),
            reward(
                "validation",
                r"val-core/(?P<source>.+)/(?:acc|reward|score)/mean(?:@|_at_)(?P<k>\d+)",
                AFTER,
                "mean@{k}",
            ),
            reward("validation", r"val/test_score/(?P<source>.+)", AFTER),
            reward(
                "pass@k",
                r"val-(?:core|aux)/(?P<source>.+)/(?:acc|reward|score)/best(?:@|_at_)(?P<k>\d+)/mean",
                AFTER,
                "best@{k}",
            ),
        ),
        without_entropy="set actor_rollout_ref.actor.calculate_entropy=True (older versions: "
        "entropy_coeff above 0)",
    ),
    Framework(
        name="TRL",
        sign=r"(?:train/)?(?:frac_reward_zero_std|reward_std|completions/mean_length)"
        r"|(?:train/)?objective/(?:scores|entropy)|(?:train/)?rewards/.+/mean",
        rules=(
            entropy(r"(?:train/)?entropy", BEFORE, "token mean"),
            entropy_on_validation(r"eval[_/]entropy", "token mean"),
            entropy(r"(?:train/)?policy/entropy_avg", BEFORE, "token mean", note=DURING),
            entropy(
                r"(?:train/)?objective/entropy",
                BEFORE,
                "sum over a sequence",
                kind="nll",
                note="negative before June 2026, when padding was summed",
            ),
            reward("train", r"(?:train/)?(?:reward|reward_mean|objective/scores)", BEFORE),
            reward("validation", r"(?P<source>eval)[_/]reward", AFTER),
        ),
        without_entropy="upgrade TRL: its GRPO and RLOO trainers log `entropy`, older ones do not",
    ),
)


def framework_of(keys: Iterable[str]) -> Framework | None:
    """The first framework of which some key bears the sign, or None."""
    names = list(keys)
    for framework in FRAMEWORKS:
        sign = re.compile(framework.sign)
        if any(sign.fullmatch(name) for name in names):
            return framework
    return None


def meaning_of(key: str, framework: Framework) -> tuple[int, Meaning] | None:
    """(preference, meaning) of a key by the rules of a framework; None where none matches."""
    for order, rule in enumerate(framework.rules):
        match = re.fullmatch(rule.pattern, key)
        if match:
            groups = match.groupdict()
            metric = rule.meaning.metric.replace("{k}", groups.get("k") or "")
            source = groups.get("source") or ""
            return order, replace(rule.meaning, metric=metric, source=source)
    return None
