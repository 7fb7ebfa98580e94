"""Scopes in text form."""

import pytest

from fairlead_schemas.policies.rights import CLUSTER, Scope, ScopeError, is_group, parse_scope


@pytest.mark.parametrize(
    "text",
    ["cluster", "pool:a100", "queue:research/vision", "project:llm", "job:812", "job:812_3", "volume:data"],
)
def test_a_scope_is_read_and_written_alike(text: str) -> None:
    """The text form is the one in events, files and answers."""
    assert str(parse_scope(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 'expected "cluster" or one of pool:NAME'),
        ("cluster:x", 'expected "cluster" or one of'),
        ("everything", 'expected "cluster" or one of'),
        ("queue:", "a queue's path such as research/vision"),
        ("queue:a//b", "a queue's path"),
        ("queue:a/../b", "a queue's path"),
        ("queue:Research", "a queue's path"),
        ("queue:reſearch", "a queue's path"),
        ("pool:*", "1 to 63 of a-z 0-9 _ -"),
        ("job:0", "a job's id"),
        ("job:x" * 200, "a job's id"),
    ],
)
def test_a_scope_that_cannot_be_read_is_refused_with_what_was_expected(text: str, expected: str) -> None:
    """Look-alike letters, empty and dotted segments are no queue; the text in the message is bounded."""
    with pytest.raises(ScopeError) as raised:
        parse_scope(text)
    assert expected in str(raised.value) and len(str(raised.value)) < 300


def test_groups_are_told_apart_by_their_prefix() -> None:
    """Principals are opaque ids without one."""
    assert is_group("group:vision") and not is_group("p-7f")
    assert parse_scope("cluster") == CLUSTER == Scope("cluster", "")
