"""The list of grants: who may do what, why, and why not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_rights.access_list import AccessList, Grant, Target
from fairlead_rights.roles import OWNER_VERBS, ROLE_TABLE, verbs_of
from fairlead_schemas.policies.rights import CLUSTER, ROLES, SCOPE_KINDS, VERBS, Role, Scope, Verb, parse_scope
from tests.rights import naive

HAND = "person"


def listed(*grants: Grant, people: tuple[str, ...] = ("ann", "bob")) -> AccessList:
    """A list in which these people are active and these grants hold."""
    access = AccessList()
    for person in people:
        access.admit(person)
    for grant in grants:
        access.grant(grant, HAND)
    return access


def is_(subject: str, role: Role, scope: str) -> Grant:
    """`subject` is a `role` in a scope."""
    return Grant(subject, role, parse_scope(scope))


# ------------------------------------------------------------------------------- one rule


def test_an_unknown_principal_may_do_nothing() -> None:
    """Not even what a grant that names it would allow, and neither may somebody without a name."""
    access = listed(is_("eve", "admin", "cluster"))
    for verb in VERBS:
        assert not access.may("eve", verb, Target(queue="research"))
        assert not access.may("", verb, Target())
        assert not access.may("ann", verb, Target(queue="research"))


def test_a_suspended_principal_loses_everything_at_once_and_its_grants_return_with_it() -> None:
    """Own jobs, too."""
    access = listed(is_("ann", "member", "queue:research"))
    own = Target(queue="research", job="7", owner="ann")
    assert access.may("ann", "job:submit", own) and access.may("ann", "job:cancel", own)
    access.suspend("ann")
    assert not any(access.may("ann", verb, own) for verb in VERBS)
    assert access.why_not("ann", "job:submit", own).principal == "suspended"
    access.admit("ann")
    assert access.may("ann", "job:submit", own)


@pytest.mark.parametrize(
    ("scope", "queue", "covered"),
    [
        ("queue:research/vision", "research/vision", True),
        ("queue:research/vision", "research/vision/llm", True),
        ("queue:research/vis", "research/vision", False),
        ("queue:research/vision", "research", False),
        ("queue:research", "research2", False),
        ("queue:research/vision", "", False),
        ("cluster", "research/vision", True),
    ],
)
def test_queues_are_compared_by_whole_segments(scope: str, queue: str, covered: bool) -> None:
    """A prefix of a name is another queue."""
    assert listed(is_("ann", "member", scope)).may("ann", "job:submit", Target(queue=queue)) is covered


def test_an_owner_needs_no_grant_for_its_own_job_but_has_none_for_others() -> None:
    """Ownership gives exactly the verbs of an owner."""
    access = listed()
    own, other = Target(queue="q", job="7", owner="ann"), Target(queue="q", job="8", owner="bob")
    assert {verb for verb in VERBS if access.may("ann", verb, own)} == OWNER_VERBS
    assert not any(access.may("ann", verb, other) for verb in VERBS)
    assert access.why("ann", "job:read", own) == ()


def test_a_role_at_one_job_reaches_that_job_and_its_elements_alone() -> None:
    """This is how a session is shared."""
    access = listed(is_("ann", "member", "job:7"))
    for job, allowed in (("7", True), ("7_3", True), ("70", False), ("8", False), ("", False)):
        assert access.may("ann", "session:open", Target(queue="q", job=job, owner="bob")) is allowed
    assert not access.may("ann", "job:cancel", Target(queue="q", job="7", owner="bob"))


def test_no_role_above_a_single_job_enters_sessions() -> None:
    """An admin, too, grants it for that job first, which is an event."""
    for role in ROLES:
        for kind in SCOPE_KINDS:
            assert "session:open" not in verbs_of(role, kind) or kind == "job"


def test_the_groups_of_each_source_are_its_own() -> None:
    """A sync of one source replaces its members and leaves those of the other."""
    access = listed(is_("group:vision", "member", "queue:vision"))
    place = Target(queue="vision")
    access.sync_group("group:vision", "scim", ["ann", "bob"])
    access.sync_group("group:vision", "person", ["ann"])
    assert access.may("bob", "job:submit", place)
    access.sync_group("group:vision", "scim", [])
    assert access.may("ann", "job:submit", place) and not access.may("bob", "job:submit", place)
    access.sync_group("group:vision", "person", [])
    assert not access.may("ann", "job:submit", place) and access.groups == {}


def test_a_grant_of_two_sources_holds_until_both_take_it_back() -> None:
    """A queue file does not take away what a person gave."""
    grant = is_("ann", "member", "queue:vision")
    access = listed(grant)
    access.grant(grant, "queue file")
    access.revoke(grant, "queue file")
    assert access.may("ann", "job:submit", Target(queue="vision"))
    access.revoke(grant, HAND)
    access.revoke(grant, HAND)
    assert not access.may("ann", "job:submit", Target(queue="vision")) and access.grants == {}


# ------------------------------------------------------------------------------- giving


def test_nobody_grants_more_than_they_hold() -> None:
    """For every role, scope and holder: after a grant the receiver holds no verb that the giver did not hold there."""
    scopes = [
        parse_scope(text) for text in ("cluster", "pool:a", "queue:q", "queue:q/r", "project:p", "job:7", "volume:v")
    ]
    target = Target(queue="q/r", pool="a", project="p", job="7", volume="v", owner="ann")
    for held in ROLES:
        for at in scopes:
            for role in ROLES:
                for scope in scopes:
                    access = listed(Grant("bob", held, at))
                    place = _place(scope, target)
                    if not access.may_grant("bob", role, scope, place):
                        continue
                    missing = {verb for verb in verbs_of(role, scope.kind) if not access.may("bob", verb, place)}
                    assert missing <= {"session:open"}, (held, at, role, scope)
                    assert not missing or scope.kind == "job"


def _place(scope: Scope, target: Target) -> Target:
    """The thing that a scope names, without what belongs to narrower ones."""
    if scope.kind == "cluster":
        return Target()
    if scope.kind == "queue":
        return Target(queue=scope.name, pool="a")
    return target if scope.kind == "job" else Target()._replace(**{scope.kind: scope.name})


def test_a_queue_admin_grants_roles_below_its_own_queue_only() -> None:
    """Neither above it nor next to it, and no operator or admin."""
    access = listed(is_("ann", "queue-admin", "queue:research"))
    assert access.may_grant("ann", "member", parse_scope("queue:research/llm"), Target(queue="research/llm"))
    assert access.may_grant("ann", "queue-admin", parse_scope("queue:research"), Target(queue="research"))
    assert not access.may_grant("ann", "member", parse_scope("queue:other"), Target(queue="other"))
    assert not access.may_grant("ann", "operator", parse_scope("queue:research"), Target(queue="research"))
    assert not access.may_grant("ann", "viewer", CLUSTER, Target())
    assert not access.may_grant("ann", "admin", CLUSTER, Target())


def test_an_owner_shares_its_own_job() -> None:
    """`session:share` is an owner's; a member of the queue has it for no job of others."""
    access = listed(is_("bob", "member", "queue:q"))
    own = Target(queue="q", job="7", owner="ann")
    assert access.may_grant("ann", "member", Scope("job", "7"), own)
    assert not access.may_grant("bob", "member", Scope("job", "7"), own)


def test_an_admin_is_a_role_of_the_cluster_alone() -> None:
    """In no narrower scope is there anything to be granted by that name."""
    assert [kind for kind in SCOPE_KINDS if verbs_of("admin", kind)] == ["cluster"]
    access = listed(is_("ann", "admin", "queue:q"))
    assert not access.may("ann", "job:read", Target(queue="q"))
    assert listed(is_("ann", "admin", "cluster"), is_("eve", "admin", "cluster")).admins() == {"ann"}


# ------------------------------------------------------------------------------- reasons


def test_a_denial_names_the_roles_held_and_those_who_could_give() -> None:
    """Only subjects that hold both the verb and the right to grant there are named."""
    access = listed(
        is_("ann", "viewer", "queue:research"),
        is_("group:leads", "queue-admin", "queue:research"),
        is_("bob", "operator", "cluster"),
        is_("root", "admin", "cluster"),
    )
    denial = access.why_not("ann", "job:submit", Target(queue="research/llm"))
    assert denial.principal == "active" and denial.verb == "job:submit"
    assert [str(grant) for grant in denial.holds] == ["ann is viewer in queue:research"]
    assert denial.givers == ("group:leads", "root")
    assert access.why_not("eve", "job:read", Target()).principal == "unknown"


def test_what_allows_something_is_named() -> None:
    """By the grants that allow it, of the principal and of its groups."""
    access = listed(is_("ann", "viewer", "cluster"), is_("group:vision", "member", "queue:vision"))
    access.sync_group("group:vision", HAND, ["ann"])
    assert [str(grant) for grant in access.why("ann", "job:submit", Target(queue="vision/a"))] == [
        "group:vision is member in queue:vision"
    ]
    assert len(access.why("ann", "job:read", Target(queue="vision"))) == 2
    assert access.why("bob", "job:read", Target(queue="vision")) == ()


# ------------------------------------------------------------------------------- against the naive reading

_PEOPLE = st.sampled_from(["ann", "bob", "eve"])
_SUBJECTS = st.sampled_from(["ann", "bob", "group:a", "group:b"])
_SCOPES = st.sampled_from(
    ["cluster", "pool:a", "queue:q", "queue:q/r", "queue:q2", "project:p", "job:7", "job:7_1", "volume:v"]
).map(parse_scope)
_TARGETS = st.builds(
    Target,
    queue=st.sampled_from(["", "q", "q/r", "q/r/s", "q2", "qq"]),
    pool=st.sampled_from(["", "a", "b"]),
    project=st.sampled_from(["", "p"]),
    job=st.sampled_from(["", "7", "7_1", "7_2", "71"]),
    volume=st.sampled_from(["", "v"]),
    owner=st.sampled_from(["", "ann", "bob"]),
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), _PEOPLE),
        st.tuples(st.just("suspend"), _PEOPLE),
        st.tuples(st.just("grant"), _SUBJECTS, st.sampled_from(ROLES), _SCOPES),
        st.tuples(st.just("revoke"), _SUBJECTS, st.sampled_from(ROLES), _SCOPES),
        st.tuples(st.just("sync"), st.sampled_from(["group:a", "group:b"]), st.sets(_PEOPLE)),
        st.tuples(st.just("ask"), _PEOPLE, st.sampled_from(VERBS), _TARGETS),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(_STEPS)
def test_answers_are_those_of_the_naive_reading_after_every_change(steps: list[Any]) -> None:
    """Also those that were given before something changed: nothing that is kept outlives its reason."""
    access = AccessList()
    active: set[str] = set()
    members: set[tuple[str, str]] = set()
    grants: set[Grant] = set()
    for step in steps:
        match step:
            case ("admit", person):
                access.admit(person)
                active.add(person)
            case ("suspend", person):
                access.suspend(person)
                active.discard(person)
            case ("grant", subject, role, scope):
                access.grant(Grant(subject, role, scope), HAND)
                grants.add(Grant(subject, role, scope))
            case ("revoke", subject, role, scope):
                access.revoke(Grant(subject, role, scope), HAND)
                grants.discard(Grant(subject, role, scope))
            case ("sync", group, people):
                access.sync_group(group, HAND, people)
                members = {each for each in members if each[0] != group} | {(group, person) for person in people}
            case _:
                _, person, verb, target = step
                expected = naive.may(active, members, grants, person, verb, target)
                assert access.may(person, verb, target) is expected
                if expected and not (target.owner == person and verb in OWNER_VERBS):
                    assert access.why(person, verb, target)


def test_every_verb_is_in_some_role_or_an_owners() -> None:
    """A verb that nobody can hold would be a route that nobody can use."""
    held: set[Verb] = set(OWNER_VERBS)
    for row in ROLE_TABLE.values():
        held |= row.wide | row.job | row.volume
    assert held == set(VERBS)
    assert list(ROLE_TABLE) == list(ROLES)
