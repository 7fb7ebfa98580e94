"""Names of snapshots' shapes: another name for every change of a type that a snapshot reaches."""

from typing import Any, Literal, NamedTuple

import msgspec
import pytest

from fairlead_bus.snapshot_codec import schema_of


class Spot(NamedTuple):
    at: int


class Leaf(msgspec.Struct):
    spot: Spot
    kind: Literal["a", "b"] = "a"


class Tree(msgspec.Struct):
    leaves: dict[str, list[Leaf]]
    above: "Tree | None" = None


def tree(leaf: Any) -> type:
    """A tree of leaves."""
    return msgspec.defstruct("Tree", [("leaves", dict[str, list[leaf]])])  # type: ignore[valid-type]


OTHERS = {
    "a field more": msgspec.defstruct("Leaf", [("spot", Spot), ("kind", Literal["a", "b"], "a"), ("more", int, 0)]),
    "a field less": msgspec.defstruct("Leaf", [("spot", Spot)]),
    "another type": msgspec.defstruct("Leaf", [("spot", Spot), ("kind", str, "a")]),
    "another word": msgspec.defstruct("Leaf", [("spot", Spot), ("kind", Literal["a", "c"], "a")]),
    "another default": msgspec.defstruct("Leaf", [("spot", Spot), ("kind", Literal["a", "b"], "b")]),
    "another order": msgspec.defstruct("Leaf", [("kind", Literal["a", "b"], "a"), ("spot", Spot, Spot(0))]),
    "another encoding": msgspec.defstruct("Leaf", [("spot", Spot), ("kind", Literal["a", "b"], "a")], array_like=True),
    "a type within": msgspec.defstruct(
        "Leaf", [("spot", NamedTuple("Spot", [("at", float)])), ("kind", Literal["a", "b"], "a")]
    ),
}


@pytest.mark.parametrize("change", OTHERS)
def test_every_change_of_a_type_changes_its_fingerprint(change: str) -> None:
    """The type may be nested at any depth, and old bytes may or may not decode."""
    assert schema_of(tree(OTHERS[change]), 1) != schema_of(tree(Leaf), 1)


def test_equal_types_have_one_fingerprint() -> None:
    """Their modules and docstrings make no difference; a change of meaning does."""
    twin = msgspec.defstruct(
        "Leaf", [("spot", Spot), ("kind", Literal["a", "b"], "a")], namespace={"__doc__": "Words."}
    )
    assert schema_of(tree(twin), 1) == schema_of(tree(Leaf), 1)
    assert schema_of(tree(Leaf), 2) != schema_of(tree(Leaf), 1)


def test_types_of_one_name_are_distinguished_and_may_be_recursive() -> None:
    """Two modules may each have a `Leaf`."""
    both = msgspec.defstruct("Both", [("one", Leaf), ("other", OTHERS["a field less"]), ("tree", Tree)])
    same = msgspec.defstruct("Both", [("one", Leaf), ("other", Leaf), ("tree", Tree)])
    assert schema_of(both, 1) != schema_of(same, 1)
