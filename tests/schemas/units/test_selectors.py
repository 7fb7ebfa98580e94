"""Requirements of labels: read, written back, and held against labels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.units.selectors import SelectorError, equal, parse, suits

PRODUCT = "nvidia.com/gpu.product"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("key=value", "key=value"),
        ("key == value", "key=value"),
        ("key!=value", "key!=value"),
        ("key in (b, a,b)", "key in (a,b)"),
        ("key notin (a)", "key notin (a)"),
        ("key", "key"),
        ("!key", "!key"),
        ("key>=550.54", "key>=550.54"),
        ("key < 13", "key<13"),
        (f"{PRODUCT}~A100", f"{PRODUCT}~A100"),
        (f"{PRODUCT}~H100| A100", f"{PRODUCT}~A100|H100"),
        ("key=", "key="),
    ],
)
def test_a_requirement_is_written_in_one_way(text: str, canonical: str) -> None:
    """Equal requests have equal texts; the canonical one reads as itself."""
    assert parse(text).text == canonical
    assert parse(canonical).text == canonical


@pytest.mark.parametrize(
    "text",
    ["", "=x", "key in ()", "key in (a,,b)", "key in a", "key>=x", "key~", "key~A100|", "key~-", "key=a\nb", "k" * 300],
)
def test_selectors_without_a_meaning_are_refused(text: str) -> None:
    """With the expected and the found value."""
    with pytest.raises(SelectorError, match="expected"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        (f"{PRODUCT}~A100", "NVIDIA-A100-SXM4-80GB", True),
        (f"{PRODUCT}~a100-sxm4", "NVIDIA-A100-SXM4-80GB", True),
        (f"{PRODUCT}~A10", "NVIDIA-A100-SXM4-80GB", False),
        (f"{PRODUCT}~A10|H100", "NVIDIA-H100-PCIe", True),
        (f"{PRODUCT}~A10|H100", "NVIDIA-A30", False),
        (f"{PRODUCT}>=550.54", "550.54.15", True),
        (f"{PRODUCT}>550.54", "550.54.0", False),
        (f"{PRODUCT}>=12.4", "12.10", True),
        (f"{PRODUCT}<13", "none", False),
        (f"{PRODUCT} in (A,B)", "B", True),
        (f"{PRODUCT} notin (A,B)", "B", False),
        (f"!{PRODUCT}", "B", False),
    ],
)
def test_a_requirement_is_held_against_a_label(text: str, value: str, expected: bool) -> None:
    """Words whatever the case, versions number by number, sets as in Kubernetes."""
    assert suits({PRODUCT: value}, (text,)) is expected


@pytest.mark.parametrize("text", [f"{PRODUCT}!=A", f"{PRODUCT} notin (A)", f"!{PRODUCT}"])
def test_a_negative_selector_matches_a_missing_label(text: str) -> None:
    """As in Kubernetes; a positive one does not."""
    assert suits({}, (text,))
    assert not suits({}, (PRODUCT,))


@given(st.text(max_size=20), st.text(max_size=20))
def test_an_equal_label_says_that_label_or_is_refused(key: str, value: str) -> None:
    """No key or value of a nodeSelector turns into a requirement of another kind."""
    try:
        text = equal(key, value)
    except SelectorError:
        return
    assert suits({key: value}, (text,))
    assert not suits({key: f"{value}x"}, (text,))
    assert not suits({}, (text,))
