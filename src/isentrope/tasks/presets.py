"""What is known of public data sets: where they are, which fields they have, how they are judged.

A preset is data. Its fields are lists of dotted paths, of which the first that a row has is taken,
so that one preset reads a set in the several shapes in which it is passed around.
"""

from dataclasses import dataclass

__all__ = ["BOXED_TEMPLATE", "CODE_TEMPLATE", "GENERIC", "PRESETS", "Preset", "fill"]

BOXED_TEMPLATE = (
    "{problem}\n\nPlease reason step by step, and put your final answer within \\boxed{{}}."
)
CODE_TEMPLATE = "{problem}\n\nWrite a Python program, and put all of it in one ```python``` block."


def fill(template: str, problem: str) -> str:
    """The template with the problem in the place of {problem}; other braces may be doubled or not."""
    parts = [part.replace("{{", "{").replace("}}", "}") for part in template.split("{problem}")]
    return problem.join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """How rows become problems."""

    hub: str = ""
    """Hub id, `NAME` or `NAME:CONFIGURATION`."""
    train_split: str = "train"
    test_split: str = ""
    """Empty if the set has none: problems are held out of training instead."""
    prompts: tuple[str, ...] = ("problem", "question", "prompt")
    """Fields of the problem's text; chat messages are taken as they are, without the template."""
    answers: tuple[str, ...] = ("answer",)
    """Fields of the gold answer."""
    gold: str = "plain"
    """How the answer stands in its field: plain, hash (after ####), boxed, or list."""
    template: str = BOXED_TEMPLATE
    """The prompt, with {problem} in it."""
    verifier: str = "math"
    """math or code; own where a reward function of the recipe judges."""
    formats: tuple[str, ...] = ("boxed",)
    """Where the maths verifier looks for the answer."""
    where: tuple[tuple[str, str], ...] = ()
    """Fields and the values that rows must have; others are left out."""


VERL_ANSWERS = ("reward_model.ground_truth", "answer")
DAPO_TEMPLATE = (
    "Solve the following math problem step by step. Put your final answer on the last line, as "
    "Answer: and the answer.\n\n{problem}"
)

GENERIC = Preset(answers=("answer", "reward_model.ground_truth", "final_answer", "solution"))

PRESETS = {
    "gsm8k": Preset(hub="openai/gsm8k:main", test_split="test", gold="hash"),
    "math": Preset(
        hub="DigitalLearningGmbH/MATH-lighteval",
        test_split="test",
        answers=("reward_model.ground_truth", "answer", "solution"),
        gold="boxed",
    ),
    "dapo_math": Preset(
        hub="BytedTsinghua-SIA/DAPO-Math-17k",
        answers=VERL_ANSWERS,
        template=DAPO_TEMPLATE,
        formats=("answer", "boxed"),
    ),
    "eurus2_math": Preset(
        hub="PRIME-RL/Eurus-2-RL-Data",
        test_split="validation",
        answers=VERL_ANSWERS,
        where=(("ability", "math"),),
    ),
    "eurus2_code": Preset(
        hub="PRIME-RL/Eurus-2-RL-Data",
        test_split="validation",
        answers=VERL_ANSWERS,
        template=CODE_TEMPLATE,
        verifier="code",
        where=(("ability", "code"),),
    ),
    "big_math": Preset(hub="SynthLabsAI/Big-Math-RL-Verified"),
    "math500": Preset(hub="HuggingFaceH4/MATH-500", test_split="test"),
    "aime24": Preset(hub="HuggingFaceH4/aime_2024", test_split="train"),
    "aime25": Preset(
        hub="math-ai/aime25", test_split="test", answers=("answer", "solution"), gold="boxed"
    ),
    "amc": Preset(hub="AI-MO/aimo-validation-amc", test_split="train"),
    "olympiadbench": Preset(
        hub="Hothan/OlympiadBench:OE_TO_maths_en_COMP",
        answers=("final_answer", "answer"),
        gold="list",
    ),
    "minerva_math": Preset(
        hub="math-ai/minervamath", test_split="test", answers=("answer", "solution"), gold="boxed"
    ),
    "omni_math": Preset(hub="KbsdJames/Omni-MATH", test_split="test"),
}
