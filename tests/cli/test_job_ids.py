"""Forms of job ids on the command line: single ids, elements, ranges, lists, last, all."""

import pytest

from fairlead.commands.options import expand_ids
from fairlead.errors import InputRefused, NotFound


def ids(*words: str, newest: str | None = "41", mine: tuple[str, ...] = ("40", "41")) -> list[str]:
    return expand_ids(words, last=lambda: newest, everything=lambda: list(mine))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["812"], ["812"]),
        (["812_3"], ["812_3"]),
        (["1-3"], ["1", "2", "3"]),
        (["7,9,12-14"], ["7", "9", "12", "13", "14"]),
        (["812[0-2,5]"], ["812_0", "812_1", "812_2", "812_5"]),
        (["812_[3]"], ["812_3"]),
        (["last"], ["41"]),
        (["all"], ["40", "41"]),
        (["3", "1-3", "last", "3"], ["3", "1", "2", "41"]),
        (["5,812[1,2]"], ["5", "812_1", "812_2"]),
    ],
)
def test_ids_ranges_and_last_select_jobs(words: list[str], expected: list[str]) -> None:
    """Each form gives its jobs, in the given order, each once."""
    assert ids(*words) == expected


def test_another_word_is_a_name_where_the_verb_takes_names() -> None:
    """Ids, ranges, last and all are never looked up as names."""
    asked: list[str] = []

    def named(word: str) -> str:
        asked.append(word)
        return "7"

    found = expand_ids(["train-llm", "812", "last", "1-2"], last=lambda: "41", everything=list, named=named)
    assert (found, asked) == (["7", "812", "41", "1", "2"], ["train-llm"])


@pytest.mark.parametrize("word", ["", ",", " ", "x", "0", "3-1", "812[a]", "812[2-1]", "1-99999", "812_", "-1", "1.5"])
def test_an_invalid_job_id_is_refused(word: str) -> None:
    """With the expected forms, and without a request to the cluster."""
    with pytest.raises(InputRefused, match="expected"):
        ids(word)


def test_last_without_any_job_is_not_found() -> None:
    """`last` for a user without jobs is an error of its own, with exit code 3."""
    with pytest.raises(NotFound) as caught:
        ids("last", newest=None)
    assert caught.value.exit_code == 3
