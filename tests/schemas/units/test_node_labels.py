"""Labels and taints that an admin writes: Kubernetes' rules, and what is neither."""

import pytest

from fairlead_schemas.units.taints import NodeLabelError, Taint, parse_label, parse_taint


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("team=vision:NoSchedule", Taint("team", "vision", "NoSchedule")),
        ("nvidia.com/gpu:NoExecute", Taint("nvidia.com/gpu", "", "NoExecute")),
        ("a=b.c_d-e:PreferNoSchedule", Taint("a", "b.c_d-e", "PreferNoSchedule")),
    ],
)
def test_a_taint_is_read_and_written(text: str, taint: Taint) -> None:
    """Back to the same text."""
    assert parse_taint(text) == taint
    assert taint.text == text


def test_an_empty_value_is_none() -> None:
    """One taint has one text."""
    assert parse_taint("key=:NoSchedule").text == "key:NoSchedule"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "key",
        "key=value",
        "key=value:",
        "key=value:Never",
        "=v:NoSchedule",
        "k=a b:NoSchedule",
        "k=v:NoSchedule\n",
        "-k:NoSchedule",
        f"k={'v' * 64}:NoSchedule",
        "k=a:b:NoSchedule",
    ],
)
def test_text_that_is_no_taint_is_refused(text: str) -> None:
    """The error has the expected form."""
    with pytest.raises(NodeLabelError, match='expected a taint such as "key=value:NoSchedule"'):
        parse_taint(text)


def test_a_label_is_read() -> None:
    """Keys may have a domain before them, values may be empty."""
    assert parse_label("fairlead/rack=r1") == ("fairlead/rack", "r1")
    assert parse_label("dedicated=") == ("dedicated", "")


@pytest.mark.parametrize(
    "text", ["", "rack", "=r1", "fairlead/=r1", "a/b/c=d", "rack=r 1", "rack=r1,r2", "rack=" + "r" * 64]
)
def test_text_that_is_no_label_is_refused(text: str) -> None:
    """The error has the expected form."""
    with pytest.raises(NodeLabelError, match='expected a label such as "fairlead/rack=r1"'):
        parse_label(text)
