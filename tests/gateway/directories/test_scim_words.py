"""Filters, paths and operations of SCIM as text: what each selects and changes, and what cannot be read."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_gateway.directories.group_names import group_name, login_name
from fairlead_gateway.directories.scim_errors import ScimError
from fairlead_gateway.directories.scim_filter import parse_filter, parse_path
from fairlead_gateway.directories.scim_patch import PATCH, patched, read_operations
from fairlead_gateway.directories.scim_schema import GROUPS, USERS, read
from fairlead_schemas.units.ids import is_token

ANN = {
    "userName": "Ann",
    "externalId": "X1",
    "active": True,
    "name": {"givenName": "Ann", "familyName": 'O"Hara'},
    "emails": [
        {"value": "a@corp.example", "type": "work", "primary": True},
        {"value": "a@home.example", "type": "home"},
    ],
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('userName eq "ann"', True),
        ('USERNAME EQ "ANN"', True),
        ('externalId eq "x1"', False),
        ('urn:ietf:params:scim:schemas:core:2.0:User:userName sw "a"', True),
        ('userName ne "ann"', False),
        ('userName co "nn" and active eq true', True),
        ('active eq false or name.familyName eq "o\\"hara"', True),
        ("not (active eq true) or userName pr", True),
        ("not (active eq true or userName pr)", False),
        ("active eq false and active eq false or userName pr", True),
        ("active eq false and (active eq false or userName pr)", False),
        ('emails eq "a@home.example"', True),
        ('emails[type eq "home" and primary eq true]', False),
        ('emails[type eq "home"]', True),
        ('emails.type eq "other"', False),
        ("displayName pr", False),
        ('userName gt "am" and userName lt "ao"', True),
    ],
)
def test_a_filter_selects(text: str, expected: bool) -> None:
    """`and` binds closer than `or`; names and most texts are compared without case."""
    assert parse_filter(text, USERS).test(ANN) is expected


@pytest.mark.parametrize(
    "text",
    [
        "userName",
        "userName eq",
        "userName eq ann",
        'nickname eq "x"',
        'userName is "x"',
        'userName eq "x',
        "(userName pr",
        "userName pr)",
        "not userName pr",
        "active gt true",
        'active eq "true"',
        "userName eq true",
        'emails[type eq "a"',
        'emails[city eq "a"]',
        "(" * 30 + "userName pr" + ")" * 30,
        "userName pr or " * 500 + "userName pr",
        "userName eq [1]",
    ],
)
def test_a_filter_that_cannot_be_read_is_refused(text: str) -> None:
    """With the code of RFC 7644, and without an answer that would be everything."""
    with pytest.raises(ScimError) as refused:
        parse_filter(text, USERS)
    assert (refused.value.status, refused.value.scim_type) == (400, "invalidFilter")


@given(st.text(max_size=60))
def test_no_text_breaks_the_readers(text: str) -> None:
    """Whatever comes is read or refused."""
    for parse in (parse_filter, parse_path):
        with contextlib.suppress(ScimError):
            parse(text, USERS)


@pytest.mark.parametrize("equal", ['userName eq "x"', "active eq true", 'externalId eq "X"'])
def test_a_comparison_is_known_for_a_look_up(equal: str) -> None:
    """One alone, not a part of something larger."""
    assert parse_filter(equal, USERS).equals is not None
    for larger in (f"{equal} or active eq false", f"not ({equal})", f"{equal} and active eq true"):
        assert parse_filter(larger, USERS).equals is None


def changed(*operations: Any, resource: dict[str, Any] = ANN) -> dict[str, Any]:
    """The resource after the operations."""
    return patched(resource, read_operations({"schemas": [PATCH], "Operations": list(operations)}), USERS)


WORK, HOME = ANN["emails"]


@pytest.mark.parametrize(
    ("operation", "attribute", "expected"),
    [
        ({"op": "replace", "path": "name.givenName", "value": "A"}, "name", {"givenName": "A", "familyName": 'O"Hara'}),
        (
            {"op": "replace", "path": "name", "value": {"givenName": "A"}},
            "name",
            {"givenName": "A", "familyName": 'O"Hara'},
        ),
        (
            {"op": "add", "value": {"name.givenName": "A", "title": "Dr", "id": "x"}},
            "name",
            {"givenName": "A", "familyName": 'O"Hara'},
        ),
        ({"op": "remove", "path": "name"}, "name", None),
        ({"op": "remove", "path": 'emails[type eq "home"]'}, "emails", [WORK]),
        ({"op": "remove", "path": 'emails[type eq "other"]'}, "emails", [WORK, HOME]),
        ({"op": "remove", "path": "emails", "value": [{"value": "a@home.example"}]}, "emails", [WORK]),
        ({"op": "remove", "path": "emails"}, "emails", None),
        (
            {"op": "replace", "path": 'emails[type eq "home"].value', "value": "h"},
            "emails",
            [WORK, {"value": "h", "type": "home"}],
        ),
        (
            {"op": "add", "path": 'emails[type eq "other"].value', "value": "o"},
            "emails",
            [WORK, HOME, {"type": "other", "value": "o"}],
        ),
        ({"op": "add", "path": "emails", "value": [HOME, {"value": "n"}]}, "emails", [WORK, HOME, {"value": "n"}]),
        ({"op": "replace", "path": "emails", "value": {"value": "n"}}, "emails", [{"value": "n"}]),
        (
            {"op": "add", "path": "emails", "value": [{"value": "n", "primary": True}]},
            "emails",
            [WORK | {"primary": False}, HOME, {"value": "n", "primary": True}],
        ),
        (
            {"op": "replace", "path": "urn:ietf:params:scim:schemas:core:2.0:User:displayName", "value": "A"},
            "displayName",
            "A",
        ),
        (
            {
                "op": "replace",
                "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department",
                "value": "A",
            },
            "userName",
            "Ann",
        ),
        ({"op": "Replace", "path": "ACTIVE", "value": "False"}, "active", False),
    ],
)
def test_an_operation_changes(operation: dict[str, Any], attribute: str, expected: Any) -> None:
    """One attribute of a copy; the resource itself and every other attribute are as before."""
    before = repr(ANN)
    found = changed(operation)
    assert found.get(attribute) == expected
    assert {key: value for key, value in found.items() if key != attribute} == {
        key: value for key, value in ANN.items() if key != attribute
    }
    assert repr(ANN) == before


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "remove"}, "noTarget"),
        ({"op": "replace", "path": 'emails[type eq "other"].value', "value": "x"}, "noTarget"),
        ({"op": "remove", "path": "userName"}, "mutability"),
        ({"op": "replace", "path": "id", "value": "x"}, "mutability"),
        ({"op": "add", "path": "groups", "value": [{"value": "ml"}]}, "mutability"),
        ({"op": "replace", "path": "actve", "value": False}, "invalidPath"),
        ({"op": "replace", "path": 'userName[type eq "x"]', "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": 'emails[type eq "x"', "value": "x"}, "invalidPath"),
        ({"op": "replace", "path": "active", "value": "maybe"}, "invalidValue"),
        ({"op": "replace", "path": "displayName", "value": 5}, "invalidValue"),
        ({"op": "replace", "path": "displayName", "value": "a\nb"}, "invalidValue"),
        ({"op": "replace", "value": "x"}, "invalidValue"),
        ({"op": "copy", "path": "active"}, "invalidSyntax"),
    ],
)
def test_an_operation_is_refused(operation: dict[str, Any], code: str) -> None:
    """With the code of RFC 7644; what stands before it in the same request is not carried out, as no copy is returned."""
    with pytest.raises(ScimError) as refused:
        changed({"op": "replace", "path": "displayName", "value": "new"}, operation)
    assert (refused.value.status, refused.value.scim_type) == (400, code)


def test_what_is_not_kept_is_left_out() -> None:
    """Attributes without case, of extensions, empty ones and read-only ones."""
    body = {
        "USERNAME": "ann",
        "title": "Dr",
        "emails": [],
        "displayName": None,
        "groups": [{"value": "g"}],
        "urn:x": {"a": 1},
    }
    assert read(body, USERS) == {"userName": "ann"}
    with pytest.raises(ScimError):
        read({"displayName": "Ann"}, USERS)
    with pytest.raises(ScimError):
        read([], GROUPS)


@given(st.text(max_size=70))
def test_names_are_names_or_nothing(text: str) -> None:
    """Whatever a directory calls things."""
    for found in (group_name(text), login_name(text)):
        assert found == "" or is_token(found)
