"""Plain English: how docstrings open, and words that data does not speak. `python -m tests.house.measure --list` names every place."""

import re

import pytest

from tests.house import measure
from tests.house.measure import BETTER, Language, Sizes, docstrings, prose, words_of_dialect

#: Shares of docstrings, and words per 1,000 of prose.
FREE_RELATIVES_MAX = 0.03
VERB_OR_NOUN_MIN = 0.60
DIALECT_MAX = 0.02
NAME_DIALECT_MAX = 0.01
PROSE_PER_1000_MAX = 1.0
GERUNDS_MAX = 10
#: Files, and files under 60 lines. The first grows with what the product can do: raised with rights, sign-on and directories.
FILES_MAX = 853
SMALL_FILES_MAX = 81


@pytest.fixture(scope="module")
def language() -> Language:
    return Language.measured()


def offending(openings: frozenset[str], parts: tuple[str, ...] = measure.PARTS) -> list[str]:
    return [
        f"{one.path.name}:{one.line}: {one.text.splitlines()[0]}"
        for one in docstrings(parts)
        if one.opening in openings
    ]


def better_words(parts: tuple[str, ...] = measure.PARTS) -> list[str]:
    return [
        f"{one.path.name}:{one.line}: {word!r}, better: {BETTER[word]}"
        for one in docstrings(parts)
        for word in one.dialect()
    ]


def test_docstrings_begin_with_a_verb_or_a_noun(language: Language) -> None:
    """A free relative ("What is left of…") has no subject that a reader can find: write the noun, or what the function does."""
    found = offending(measure.FREE_RELATIVES)
    assert language.share(language.free_relatives) <= FREE_RELATIVES_MAX, "\n".join(found[:20])
    assert language.share(language.verb_or_noun) >= VERB_OR_NOUN_MIN, "\n".join(offending(measure.NO_ANTECEDENT)[:20])


def test_docstrings_use_the_terms_of_the_field(language: Language) -> None:
    """The message names the better word for each."""
    assert language.share(language.dialect) <= DIALECT_MAX, "\n".join(better_words()[:20])


def test_tests_are_described_in_the_terms_of_the_field() -> None:
    """Docstrings of tests and their helpers are held to the same list as those of the product."""
    tests = Language.measured(("tests",))
    found = offending(measure.FREE_RELATIVES, ("tests",))
    assert tests.share(tests.free_relatives) <= FREE_RELATIVES_MAX, "\n".join(found[:20])
    assert tests.share(tests.dialect) <= DIALECT_MAX, "\n".join(better_words(("tests",))[:20])


def test_names_of_tests_state_behaviour() -> None:
    """A name has a subject and uses the terms of the field: `test_desired_state_of_another_incarnation_is_ignored`."""
    names = measure.names_of_tests()
    dialect = [f"{path.name}: {name}" for path, name in names if measure.NAME_DIALECT & set(name.split("_"))]
    questions = [f"{path.name}: {name}" for path, name in names if name.split("_")[1] in measure.FREE_RELATIVES]
    assert len(dialect) <= NAME_DIALECT_MAX * len(names), "\n".join(dialect)
    assert len(questions) <= FREE_RELATIVES_MAX * len(names), "\n".join(questions)


def test_pages_use_the_terms_of_the_field(language: Language) -> None:
    """Documentation is held to the same list, outside of code."""
    found = [
        f"{page.relative_to(measure.ROOT)}:{number}: {word!r}, better: {BETTER[word]}"
        for page in measure.pages()
        for number, text in prose(page)
        for word in words_of_dialect(text)
    ]
    assert 1000 * language.prose_dialect / language.prose_words <= PROSE_PER_1000_MAX, "\n".join(found[:40])


def test_modules_have_nouns_for_names() -> None:
    """A module is a thing (`allocation.py`), not an activity (`placing.py`)."""
    found = Sizes.measured().gerunds
    assert len(found) <= GERUNDS_MAX, found


def test_rooms_are_large_enough_to_live_in() -> None:
    """A file under 60 lines is most often half an idea: merge it with the one that it always travels with."""
    lines = Sizes.measured().files
    assert len(lines) <= FILES_MAX
    assert sum(count < measure.SMALL for count in lines) <= SMALL_FILES_MAX


#: Lines that explain why a job waits. They only fall, towards `measure.WHY_GOAL`.
WHY_LINES_MAX = 2_875


def test_the_explanation_of_a_wait_does_not_grow() -> None:
    """A new cause is an entry and a sentence, not another computation of what is known elsewhere."""
    assert measure.WHY_GOAL <= measure.lines_of(measure.WHY) <= WHY_LINES_MAX


#: Statements that the formatter skips: tables of data that are read as tables.
SKIPPED_MAX = 100


def test_the_formatter_is_obeyed() -> None:
    """A table of data may stand as its author has laid it out; code may not."""
    assert measure.skipped_statements() < SKIPPED_MAX


def test_no_class_name_has_two_meanings() -> None:
    """A reader who searches for a name finds one thing."""
    assert measure.repeated_classes() == {}


def test_the_rule_can_fail() -> None:
    """The words are found, whatever their case, and text in backticks is not looked at."""
    assert words_of_dialect("Nobody is told; `told` is a name, and it stands\nin for ever.") == [
        "nobody",
        "told",
        "stands in",
        "for ever",
    ]
    assert re.fullmatch(r"[a-z ,;.()]+", " ".join(BETTER)), "one spelling each"
    assert words_of_dialect("A node reports its GPUs.") == []


def test_the_table_prints() -> None:
    """CI prints it: a row for every measurement."""
    assert len(measure.table().splitlines()) == 15
