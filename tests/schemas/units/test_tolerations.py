"""Tolerations: read, written back, and held against taints."""

import pytest

from fairlead_schemas.units.taints import TolerationError, parse_toleration, tolerated

TAINT = ("fairlead/spot", "yes", "NoSchedule")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fairlead/spot=yes:NoSchedule", True),
        ("fairlead/spot=yes", True),
        ("fairlead/spot:NoSchedule", True),
        ("fairlead/spot", True),
        (":NoSchedule", True),
        (":", True),
        ("fairlead/spot=no:NoSchedule", False),
        ("fairlead/spot=:NoSchedule", False),
        ("fairlead/spot:NoExecute", False),
        ("fairlead/other", False),
        (":NoExecute", False),
    ],
)
def test_a_toleration_speaks_of_some_taints(text: str, expected: bool) -> None:
    """Key, value and effect, each of which may be left open; the text is the canonical one."""
    assert parse_toleration(text).text == text
    assert tolerated((text,), *TAINT) is expected


def test_without_any_no_taint_is_tolerated() -> None:
    """A job that says nothing stays away."""
    assert not tolerated((), *TAINT)


@pytest.mark.parametrize(
    "text", ["", "=x", "=x:NoSchedule", "key:Never", "key=a b", "-key", "key=" + "v" * 64, "k\n:NoExecute"]
)
def test_text_that_is_no_toleration_is_refused(text: str) -> None:
    """With the expected and the found value."""
    with pytest.raises(TolerationError, match="expected"):
        parse_toleration(text)
