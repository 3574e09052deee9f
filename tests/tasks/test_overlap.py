"""Deduplication against evaluation sets."""

from isentrope.tasks.overlap import remove_overlap
from isentrope.tasks.problem import Problem

TEMPLATE = "Solve this: {}\nAnswer in \\boxed{{}}."
LONG = (
    "A farmer has {} cows and sells one of them on each day of the week, how many are left on {}?"
)


def problems(*texts: str, template: str = "{}") -> list[Problem]:
    return [Problem(template.format(text), "1", "x") for text in texts]


def test_same_words_are_found_under_another_template() -> None:
    train = problems("What is $2+3$?", "Is 5 a prime, or not?", template=TEMPLATE)
    kept, report = remove_overlap(train, {"exam": problems("what is 2 + 3", "Name a prime.")})
    assert [problem.prompt for problem in kept] == [train[1].prompt]
    [overlap] = report.overlaps
    assert (overlap.train, overlap.evaluation, overlap.index, overlap.likeness) == (
        0,
        "exam",
        0,
        1.0,
    )
    assert list(report.lines()) == [
        "1 of 2 training problems are in an evaluation set",
        "  exam: 1 word for word, 0 nearly",
    ]


def test_nearly_the_same_words_need_the_same_numbers() -> None:
    train = problems(
        LONG.format(12, "Sunday"), LONG.format(13, "Sunday"), "Quite another problem, with 12 cows."
    )
    kept, report = remove_overlap(train, {"exam": problems(LONG.format(12, "Monday"), "Other.")})
    assert kept == train[1:]
    # 22 words give 18 runs of five; the last word changed takes one from each side: 17 of 19
    assert report.overlaps[0].likeness == 17 / 19


def test_nothing_in_common() -> None:
    train = problems("a b c", "d e f")
    kept, report = remove_overlap(train, {"exam": problems("g h i"), "empty": []})
    assert kept == train
    assert report.overlaps == ()
