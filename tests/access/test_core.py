"""The access core: given events, when a command comes, then these events, and nothing else."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_access.core import AccessCore
from fairlead_access.limits import SESSIONS_OF_PRINCIPAL_MAX, TOKENS_OF_PRINCIPAL_MAX
from fairlead_rights.access_list import Target
from fairlead_rights.roles import verbs_of
from fairlead_schemas.policies.rights import ROLES, VERBS
from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS, SECOND_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import levels
from fairlead_schemas.wire.authority import Authority
from tests.access.world import AccessWorld, refused
from tests.schemas.examples import COMMIT


def world(*people: str) -> AccessWorld:
    """A world with `root` as its admin, and these people without roles."""
    made = AccessWorld()
    made.admit("root", *people)
    made.grant("root", "admin", "cluster")
    return made


# ------------------------------------------------------------------------------- principals and roles


def test_admission_gives_no_right() -> None:
    """A new person may do nothing until a person grants something."""
    made = world("ann")
    assert made.core.state.access.principals["ann"]
    assert not made.core.state.access.may_anywhere("ann", "job:read")


@pytest.mark.parametrize(
    ("user", "role", "scope", "code"),
    [
        ("ann", "member", "queue:research", "denied"),
        ("lead", "member", "queue:other", "denied"),
        ("lead", "operator", "queue:research", "denied"),
        ("lead", "admin", "cluster", "denied"),
        ("root", "admin", "queue:research", "invalid"),
        ("root", "auditor", "job:7", "invalid"),
        ("root", "member", "queue:Research", "invalid"),
        ("eve", "viewer", "queue:research", "denied"),
    ],
)
def test_a_grant_beyond_the_givers_rights_or_out_of_the_table_is_refused(
    user: str, role: Any, scope: str, code: str
) -> None:
    """The state stays as it was."""
    made = world("ann", "lead")
    made.grant("lead", "queue-admin", "queue:research")
    before = made.core.snapshot()
    assert refused(made.grant("ann", role, scope, user=user), code)
    assert made.core.snapshot() == before


def test_a_lead_grants_below_its_own_queue_and_takes_it_back() -> None:
    """The event says by whom."""
    made = world("ann", "lead")
    made.grant("lead", "queue-admin", "queue:research")
    event = made.grant("ann", "member", "queue:research/llm", user="lead")
    assert isinstance(event, ev.RoleGranted) and event.by == "lead" and event.source == "person"
    place = Target(queue="research/llm")
    assert made.core.state.access.may("ann", "job:submit", place)
    assert isinstance(made.revoke("ann", "member", "queue:research/llm", user="lead"), ev.RoleRevoked)
    assert not made.core.state.access.may("ann", "job:submit", place)
    assert refused(made.revoke("ann", "member", "queue:research/llm", user="lead"), "not_found")


def test_an_owner_shares_its_job_and_nobody_elses() -> None:
    """With the owner that the gateway found."""
    made = world("ann", "bob")
    assert isinstance(made.grant("bob", "member", "job:7", user="ann", owner="ann", queue="q"), ev.RoleGranted)
    assert refused(made.grant("bob", "member", "job:8", user="ann", owner="root", queue="q"), "denied")


def test_a_subject_that_is_no_principal_is_refused() -> None:
    """A grant to a misspelt id would wait for a person to get that id."""
    assert refused(world().grant("nan", "viewer", "cluster"), "not_found")
    assert refused(world().grant("ann@example.org", "viewer", "cluster"), "invalid")


def test_the_last_admin_is_neither_suspended_nor_revoked() -> None:
    """Not even by two commands of one message that take one of two each."""
    made = world("ann")
    (event,) = made.send(cmd.SuspendPrincipal(id=made.id(), principal="root", user="root"))
    assert refused(event, "last_admin")
    assert refused(made.revoke("root", "admin", "cluster", user="root"), "last_admin")
    made.grant("ann", "admin", "cluster", user="root")
    entry = cmd.RoleEntry(subject="ann", role="admin", scope="cluster")
    suspended, kept = made.send(
        cmd.SuspendPrincipal(id=made.id(), principal="root", user="ann"),
        cmd.RevokeRole(id=made.id(), grant=entry, user="ann"),
    )
    assert isinstance(suspended, ev.PrincipalSuspended) and refused(kept, "last_admin")


def test_a_suspension_ends_tokens_and_sessions_and_keeps_grants() -> None:
    """They do not return with the principal; the grants do."""
    made = world("ann")
    made.grant("ann", "member", "cluster")
    made.send(issue(made, "t1", "ann"), opening(made, "s1", "ann"))
    made.send(cmd.SuspendPrincipal(id=made.id(), principal="ann", user="root"))
    state = made.core.state
    assert not state.tokens and not state.sessions and not state.access.may("ann", "job:read", Target())
    made.admit("ann")
    assert not state.tokens and state.access.may("ann", "job:read", Target())


def test_a_forgotten_person_keeps_no_membership_and_no_role() -> None:
    """Whatever source stated it; those of others stay. A suspension alone keeps them."""
    made = world("ann", "bob")
    made.grant("ann", "member", "cluster")
    made.grant("group:ml", "viewer", "cluster")
    for source in ("scim", "corp"):
        made.send(cmd.SyncGroup(id=made.id(), group="group:ml", source=source, added=("ann", "bob")))
    made.send(cmd.SyncGroup(id=made.id(), group="group:alone", source="scim", added=("ann",)))
    access = made.core.state.access
    made.send(cmd.SuspendPrincipal(id=made.id(), principal="ann"))
    assert access.groups_of("ann") == ("group:alone", "group:ml") and len(list(access.held("ann"))) == 2
    (event,) = made.send(cmd.SuspendPrincipal(id=made.id(), principal="ann", forget=True))
    assert event.forgotten
    assert access.groups == {"group:ml": {"scim": frozenset({"bob"}), "corp": frozenset({"bob"})}}
    made.admit("ann")
    assert not list(access.held("ann")) and not access.may("ann", "job:read", Target())
    assert access.may("bob", "job:read", Target())


def test_a_token_is_not_issued_to_somebody_who_is_suspended_in_the_same_message() -> None:
    """Otherwise it would outlive the suspension."""
    made = world("ann")
    _, event = made.send(cmd.SuspendPrincipal(id=made.id(), principal="ann"), issue(made, "t1", "ann"))
    assert refused(event, "not_found")


# ------------------------------------------------------------------------------- files and directories


def applied(
    made: AccessWorld, *grants: tuple[str, Any, str], user: str = "", scope: str = "queue:research"
) -> list[Any]:
    """The events of a queue file's roles."""
    entries = tuple(cmd.RoleEntry(subject=subject, role=role, scope=at) for subject, role, at in grants)
    return made.send(cmd.ApplyRoles(id=made.id(), source="queue-file", scope=scope, grants=entries, user=user))


def test_a_file_takes_back_what_it_stated_and_nothing_else() -> None:
    """What a person gave stays, and so does what the file states for another part of the tree."""
    made = world("ann", "bob")
    made.grant("ann", "member", "queue:research")
    applied(made, ("ann", "member", "queue:research"), ("bob", "viewer", "queue:research/llm"))
    events = applied(made)
    assert [type(event) for event in events] == [ev.RoleRevoked, ev.RoleRevoked, ev.RolesApplied]
    assert made.core.state.access.may("ann", "job:submit", Target(queue="research"))
    assert not made.core.state.access.may("bob", "job:read", Target(queue="research/llm"))


def test_a_file_that_changes_nothing_is_answered() -> None:
    """Every command leads to an event that names it."""
    made = world("ann")
    assert [type(event) for event in applied(made)] == [ev.RolesApplied]
    applied(made, ("ann", "member", "queue:research"))
    (answer,) = applied(made, ("ann", "member", "queue:research"))
    assert (answer.configured, answer.removed, answer.unchanged) == (0, 0, 1)


def test_a_file_with_one_grant_that_its_sender_may_not_give_changes_nothing() -> None:
    """All of them or none; the place in the file is named."""
    made = world("ann", "lead")
    made.grant("lead", "queue-admin", "queue:research")
    before = made.core.snapshot()
    (event,) = applied(made, ("ann", "member", "queue:research"), ("ann", "operator", "queue:research"), user="lead")
    assert refused(event, "denied") and event.message.startswith("grants[1]")
    (event,) = applied(made, ("ann", "member", "queue:other"), user="root")
    assert refused(event, "invalid") and made.core.snapshot() == before


def test_nobody_takes_back_by_a_file_what_they_may_not_give() -> None:
    """An empty list takes back everything that its source stated: it needs the right for each of these grants."""
    made = world("ann", "lead", "eve")
    made.grant("lead", "queue-admin", "queue:research")
    applied(made, ("ann", "operator", "queue:research"), ("ann", "member", "queue:research/llm"), user="root")
    before = made.core.snapshot()
    for user, scope in (("eve", "cluster"), ("eve", "queue:research"), ("lead", "cluster"), ("lead", "queue:research")):
        (event,) = applied(made, user=user, scope=scope)
        assert refused(event, "denied"), (user, scope)
    assert made.core.snapshot() == before
    assert [type(event) for event in applied(made, user="lead", scope="queue:research/llm")] == [
        ev.RoleRevoked,
        ev.RolesApplied,
    ]


def test_memberships_of_a_directory_are_its_own() -> None:
    """A sync adds and removes; a member that is no principal is refused."""
    made = world("ann", "bob")
    made.grant("group:vision", "member", "queue:vision")
    sync = cmd.SyncGroup(id=made.id(), group="group:vision", source="scim", added=("ann", "bob"))
    made.send(sync)
    made.send(cmd.SyncGroup(id=made.id(), group="group:vision", source="ldap", added=("ann",)))
    made.send(cmd.SyncGroup(id=made.id(), group="group:vision", source="scim", removed=("ann", "bob")))
    access = made.core.state.access
    assert access.may("ann", "job:submit", Target(queue="vision"))
    assert not access.may("bob", "job:submit", Target(queue="vision"))
    (event,) = made.send(cmd.SyncGroup(id=made.id(), group="group:vision", source="scim", added=("eve",)))
    assert refused(event, "not_found")
    (event,) = made.send(cmd.SyncGroup(id=made.id(), group="group:vision", source="scim", added=("ann",), user="bob"))
    assert refused(event, "denied")


# ------------------------------------------------------------------------------- tokens and sessions


def issue(made: AccessWorld, token: str, principal: str, user: str = "", for_ns: int = HOUR_NS) -> cmd.IssueToken:
    """A command that issues a token."""
    return cmd.IssueToken(id=made.id(), token=token, principal=principal, expires_ns=made.now_ns + for_ns, user=user)


def opening(made: AccessWorld, session: str, principal: str) -> cmd.OpenSession:
    """A command that opens a session."""
    return cmd.OpenSession(
        id=made.id(), session=session, principal=principal, provider="corp", expires_ns=made.now_ns + HOUR_NS
    )


def test_tokens_of_a_person_are_issued_by_that_person_alone() -> None:
    """An admin issues those of service accounts."""
    made = world("ann", "bob")
    made.send(cmd.AdmitPrincipal(id=made.id(), principal="ci", kind="service", user="root"))
    assert refused(made.send(issue(made, "t1", "ann", user="root"))[0], "denied")
    assert refused(made.send(issue(made, "t1", "ci", user="bob"))[0], "denied")
    assert isinstance(made.send(issue(made, "t1", "ann", user="ann"))[0], ev.TokenIssued)
    assert isinstance(made.send(issue(made, "t2", "ci", user="root"))[0], ev.TokenIssued)
    assert refused(made.send(cmd.RevokeToken(id=made.id(), token="t1", user="bob"))[0], "not_found")
    assert isinstance(made.send(cmd.RevokeToken(id=made.id(), token="t1", user="root"))[0], ev.TokenRevoked)


def test_who_is_admitted_by_the_same_commit_issues_nothing_yet() -> None:
    """Rights are judged on the state before the commit, in which this principal does not exist; the service itself may."""
    made = world()
    admit = cmd.AdmitPrincipal(id=made.id(), principal="ann")
    _, refusal, issued = made.send(admit, issue(made, "t1", "ann", user="ann"), issue(made, "t2", "ann"))
    assert refused(refusal, "denied")
    assert isinstance(issued, ev.TokenIssued)


@pytest.mark.parametrize("for_ns", [0, -SECOND_NS, 367 * DAY_NS])
def test_a_token_has_a_bounded_life(for_ns: int) -> None:
    """No token without an end."""
    made = world("ann")
    assert refused(made.send(issue(made, "t1", "ann", for_ns=for_ns))[0], "invalid")


def test_tokens_and_sessions_of_a_principal_are_bounded() -> None:
    """Also within one message. A session too many ends the oldest; a token too many is refused."""
    made = world("ann")
    events = made.send(*(issue(made, f"t{at}", "ann") for at in range(TOKENS_OF_PRINCIPAL_MAX + 1)))
    assert refused(events[-1], "too_many") and len(made.core.state.tokens) == TOKENS_OF_PRINCIPAL_MAX
    made.send(*(opening(made, f"s{at}", "ann") for at in range(SESSIONS_OF_PRINCIPAL_MAX + 2)))
    assert len(made.core.state.sessions) == SESSIONS_OF_PRINCIPAL_MAX
    assert "s1" not in made.core.state.sessions and "s2" in made.core.state.sessions


def test_an_id_is_used_once() -> None:
    """Also within one message: a second holder would have the first one's rights."""
    made = world("ann", "bob")
    _, again = made.send(issue(made, "t1", "ann"), issue(made, "t1", "bob"))
    assert refused(again, "conflict")
    assert refused(made.send(issue(made, "t1", "bob"))[0], "conflict")


def test_what_expires_is_an_event() -> None:
    """At its time, once; the core then sleeps."""
    made = world("ann")
    made.send(issue(made, "t1", "ann"), opening(made, "s1", "ann"))
    assert made.wait(3599) == []
    events = made.wait(1)
    assert {type(event) for event in events} == {ev.TokenRevoked, ev.SessionEnded} and len(events) == 2
    assert all(event.reason == "expired" and event.cause == "clock" for event in events)
    assert made.core.wake_at() is None


def test_the_core_is_not_woken_for_what_has_ended_before() -> None:
    """A token that was revoked is not looked for again at the time of its end."""
    made = world("ann")
    made.send(issue(made, "t1", "ann"))
    made.send(cmd.RevokeToken(id=made.id(), token="t1"))
    made.now_ns += 2 * HOUR_NS
    made.core.decide([], made.now_ns)
    assert made.core.wake_at() is None


# ------------------------------------------------------------------------------- the level of the log


def test_an_admin_raises_the_level_of_the_log_and_it_never_falls() -> None:
    """The level is in the state, and survives a snapshot. Two commands of one message cannot raise it twice."""
    made = world("ann")
    assert made.core.state.level == levels.FIRST
    raised, again = made.send(*(cmd.RaiseLevel(id=made.id(), user="root", level=levels.LEVEL) for _ in range(2)))
    assert isinstance(raised, ev.LevelRaised) and (raised.level, raised.by) == (levels.LEVEL, "root")
    assert refused(again, "conflict")
    assert AccessCore.restore(made.core.snapshot()).state.level == made.core.state.level == levels.LEVEL


@pytest.mark.parametrize(
    ("user", "level", "code"),
    [
        ("ann", levels.LEVEL, "denied"),
        ("root", levels.LEVEL + 1, "invalid"),
        ("root", levels.FIRST, "conflict"),
        ("root", 0, "conflict"),
        ("root", -1, "conflict"),
    ],
)
def test_a_level_that_cannot_be_is_refused(user: str, level: int, code: str) -> None:
    """By others than admins; one that this version does not know; one that the log has already, or had."""
    made = world("ann")
    before = made.core.snapshot()
    (event,) = made.send(cmd.RaiseLevel(id=made.id(), user=user, level=level))
    assert refused(event, code) and made.core.snapshot() == before


# ------------------------------------------------------------------------------- any commands

_IDS = st.sampled_from(["root", "ann", "bob", "ci"])
_ENTRIES = st.builds(
    cmd.RoleEntry,
    subject=st.sampled_from(["root", "ann", "bob", "group:a", "nobody", "x@y"]),
    role=st.sampled_from(ROLES),
    scope=st.sampled_from(["cluster", "queue:q", "queue:q/r", "job:7", "nonsense", "pool:a"]),
    owner=st.sampled_from(["", "ann"]),
)
_COMMANDS = st.one_of(
    st.tuples(st.just(cmd.AdmitPrincipal), st.fixed_dictionaries({"principal": _IDS})),
    st.tuples(st.just(cmd.SuspendPrincipal), st.fixed_dictionaries({"principal": _IDS})),
    st.tuples(st.just(cmd.GrantRole), st.fixed_dictionaries({"grant": _ENTRIES})),
    st.tuples(st.just(cmd.RevokeRole), st.fixed_dictionaries({"grant": _ENTRIES})),
    st.tuples(
        st.just(cmd.ApplyRoles),
        st.fixed_dictionaries(
            {
                "source": st.sampled_from(["file", "person"]),
                "scope": st.sampled_from(["cluster", "queue:q"]),
                "grants": st.lists(_ENTRIES, max_size=3).map(tuple),
            }
        ),
    ),
    st.tuples(
        st.just(cmd.SyncGroup),
        st.fixed_dictionaries(
            {
                "group": st.sampled_from(["group:a", "a"]),
                "source": st.sampled_from(["scim", "ldap"]),
                "added": st.lists(_IDS, max_size=2).map(tuple),
                "removed": st.lists(_IDS, max_size=2).map(tuple),
            }
        ),
    ),
    st.tuples(
        st.just(cmd.IssueToken),
        st.fixed_dictionaries({"token": st.sampled_from(["t1", "t2"]), "principal": _IDS, "expires_ns": st.just(60)}),
    ),
    st.tuples(st.just(cmd.RaiseLevel), st.fixed_dictionaries({"level": st.integers(0, levels.LEVEL + 1)})),
    st.tuples(st.just(cmd.RevokeToken), st.fixed_dictionaries({"token": st.sampled_from(["t1", "t2"])})),
    st.tuples(
        st.just(cmd.OpenSession),
        st.fixed_dictionaries(
            {
                "session": st.sampled_from(["s1", "s2"]),
                "principal": _IDS,
                "provider": st.just("corp"),
                "expires_ns": st.just(90),
            }
        ),
    ),
    st.tuples(st.just(cmd.EndSession), st.fixed_dictionaries({"session": st.sampled_from(["s1", "s2"])})),
    st.tuples(st.just("wait"), st.fixed_dictionaries({"seconds": st.integers(1, 100)})),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.tuples(_COMMANDS, st.sampled_from(["", "root", "ann"])), min_size=1, max_size=4), max_size=12)
)
def test_any_commands_keep_the_invariants_and_lead_to_an_event_each(messages: list[Any]) -> None:
    """The world holds each state against its invariants, snapshot and twin; an admin is always left."""
    made = world()
    for message in messages:
        commands: list[Any] = []
        for (kind, fields), user in message:
            if kind == "wait":
                made.wait(**fields)
                continue
            times = {"expires_ns": made.now_ns + fields["expires_ns"] * SECOND_NS} if "expires_ns" in fields else {}
            commands.append(kind(id=made.id(), user=user, **{**fields, **times}))
        if commands:
            causes = {event.cause for event in made.send(*commands)}
            assert causes >= {f"cmd:{command.id}" for command in commands}
        assert made.core.state.access.admins()


def by_token(made: AccessWorld, token: str, user: str, kind: Any, /, **fields: Any) -> Any:
    """Send a command by a token; its one event."""
    authority = Authority(principal=user, via=f"token:{token}", rights=made.sequence)
    (event,) = made.send(kind(id=made.id(), user=user, authority=authority, **fields))
    return event


def issued(made: AccessWorld, token: str, principal: str, **fields: Any) -> None:
    """Issue a token as a sign-in or the set-up does."""
    expires = made.now_ns + HOUR_NS
    made.send(cmd.IssueToken(id=made.id(), token=token, principal=principal, expires_ns=expires, **fields))


def test_a_token_never_makes_a_token() -> None:
    """Not even an admin's, for itself or a service account; that of the owner's file does. A person makes no owner's token."""
    made = world()
    issued(made, "t1", "root")
    issued(made, "t2", "root", kind="owner")
    new = {"token": "t3", "principal": "root", "expires_ns": made.now_ns + HOUR_NS}
    assert by_token(made, "t1", "root", cmd.IssueToken, **new).code == "denied"
    (event,) = made.send(cmd.IssueToken(id=made.id(), user="root", kind="owner", **new))
    assert event.code == "denied"
    assert isinstance(by_token(made, "t2", "root", cmd.IssueToken, **new), ev.TokenIssued)


def test_a_token_of_a_service_account_is_made_by_who_holds_as_much() -> None:
    """An admin of queues may make tokens of service accounts, but not of one that is an admin of the cluster."""
    made = world("lead")
    made.grant("lead", "queue-admin", "cluster")
    for name, role in (("ci", "member"), ("robot", "admin")):
        made.send(cmd.AdmitPrincipal(id=made.id(), principal=name, kind="service"))
        made.grant(name, role, "cluster")
    new: dict[str, Any] = {"kind": "service", "expires_ns": made.now_ns + HOUR_NS, "user": "lead"}
    (event,) = made.send(cmd.IssueToken(id=made.id(), token="t1", principal="ci", **new))
    assert isinstance(event, ev.TokenIssued)
    (event,) = made.send(cmd.IssueToken(id=made.id(), token="t2", principal="robot", **new))
    assert event.code == "denied"


@given(st.lists(st.sampled_from(VERBS), max_size=4, unique=True), st.sampled_from(ROLES))
def test_a_limited_token_gives_no_role_that_is_beyond_it(verbs: list[Any], role: Any) -> None:
    """An admin's token gives a role only if its own verbs have all of the role's, and the right to grant."""
    made = world("ann")
    issued(made, "t1", "root", verbs=tuple(verbs), scopes=("cluster",))
    entry = cmd.RoleEntry(subject="ann", role=role, scope="cluster")
    event = by_token(made, "t1", "root", cmd.GrantRole, grant=entry)
    within = not verbs or {*verbs_of(role, "cluster"), "rights:grant"} <= set(verbs)
    assert isinstance(event, ev.RoleGranted) == within


def test_a_token_limited_to_a_queue_changes_no_principal() -> None:
    """Principals belong to the cluster, which such a token does not reach."""
    made = world("ann")
    issued(made, "t1", "root", scopes=("queue:research",))
    assert by_token(made, "t1", "root", cmd.AdmitPrincipal, principal="eve").code == "denied"
    assert by_token(made, "t1", "root", cmd.SuspendPrincipal, principal="ann").code == "denied"


def test_a_sign_in_ends_no_suspension() -> None:
    """The command of a first sign-in admits the unknown and repeats the known; a suspended principal stays suspended."""
    made = world()
    first = {"principal": "ann", "first": True}
    assert isinstance(made.send(cmd.AdmitPrincipal(id=made.id(), **first))[0], ev.PrincipalAdmitted)
    made.send(cmd.SuspendPrincipal(id=made.id(), principal="ann"))
    assert made.send(cmd.AdmitPrincipal(id=made.id(), **first))[0].code == "suspended"
    assert isinstance(made.send(cmd.AdmitPrincipal(id=made.id(), principal="ann"))[0], ev.PrincipalAdmitted)


def test_a_commit_of_another_writer_changes_nothing() -> None:
    """The access core reads its own part of the log only."""
    core = AccessCore()
    before = core.snapshot()

    core.evolve(1, COMMIT)
    assert core.snapshot() == before and core.wake_at() is None


def test_a_token_with_limits_revokes_itself_alone() -> None:
    """One without limits ends the others of its principal; no person makes a token for whom they act."""
    made = world("ann")
    for token, limits in (("t1", {}), ("t2", {"verbs": ("job:read",)}), ("t3", {"scopes": ("queue:a",)}), ("t4", {})):
        issued(made, token, "ann", **limits)
    assert by_token(made, "t2", "ann", cmd.RevokeToken, token="t1").code == "denied"
    assert by_token(made, "t3", "ann", cmd.RevokeToken, token="t2").code == "denied"
    assert isinstance(by_token(made, "t3", "ann", cmd.RevokeToken, token="t3"), ev.TokenRevoked)
    assert isinstance(by_token(made, "t1", "ann", cmd.RevokeToken, token="t4"), ev.TokenRevoked)
    acting = Authority(principal="root", via="session:s", rights=made.sequence, act_as="ann")
    new = {"token": "t5", "principal": "ann", "expires_ns": made.now_ns + HOUR_NS}
    (event,) = made.send(cmd.IssueToken(id=made.id(), user="ann", authority=acting, **new))
    assert event.code == "denied"


def test_a_sign_in_beyond_the_bound_ends_the_oldest_one() -> None:
    """Two within one message end two; tokens that the person made stay, and where there are only such ones it is refused."""
    made = world("ann")
    for at in range(TOKENS_OF_PRINCIPAL_MAX):
        issued(made, f"t{at}", "ann", **({"kind": "refresh"} if at in (5, 7, 9) else {}))
    new = {"principal": "ann", "kind": "refresh", "expires_ns": made.now_ns + HOUR_NS}
    made.send(*(cmd.IssueToken(id=made.id(), token=token, **new) for token in ("r1", "r2")))
    held = made.core.state.tokens_of["ann"]
    assert len(held) == TOKENS_OF_PRINCIPAL_MAX and {"t9", "r1", "r2"} <= held.keys() and not {"t5", "t7"} & held.keys()
    (event,) = made.send(issue(made, "t500", "ann"))
    assert refused(event, "too_many")
    made = world("ann")
    made.send(*(issue(made, f"t{at}", "ann") for at in range(TOKENS_OF_PRINCIPAL_MAX)))
    (event,) = made.send(cmd.IssueToken(id=made.id(), token="r1", **new))
    assert refused(event, "too_many")


# ------------------------------------------------------------------------------- attacks by those who may grant some roles


def lead_of_all() -> AccessWorld:
    """A world in which `lead` may grant roles in the whole cluster, up to those of a queue admin."""
    made = world("lead", "ann")
    made.grant("lead", "queue-admin", "cluster")
    return made


@pytest.mark.parametrize("fields", [{"added": ("lead",)}, {"removed": ("ann",)}])
def test_a_group_beyond_the_senders_roles_keeps_its_members(fields: dict[str, Any]) -> None:
    """Members of a group have its roles, so who may not give these changes none of its members and does not make itself an admin."""
    made = lead_of_all()
    made.grant("group:admins", "admin", "cluster")
    made.send(cmd.SyncGroup(id=made.id(), group="group:admins", source="scim", added=("ann",)))
    sync = cmd.SyncGroup(id=made.id(), group="group:admins", source="scim", user="lead", **fields)
    (event,) = made.send(sync)
    assert refused(event, "denied")
    assert not made.core.state.access.may("lead", "node:operate", Target())
    made.grant("group:team", "member", "queue:research")
    (event,) = made.send(cmd.SyncGroup(id=made.id(), group="group:team", source="scim", user="lead", added=("lead",)))
    assert isinstance(event, ev.GroupSynced)


def test_a_directorys_token_fills_groups_up_to_the_roles_of_its_account() -> None:
    """It has the one verb that it needs; the roles are those that its service account holds."""
    made = world("ann")
    made.send(cmd.AdmitPrincipal(id=made.id(), principal="directory", kind="service"))
    made.grant("directory", "admin", "cluster")
    made.grant("group:admins", "admin", "cluster")
    issued(made, "t1", "directory", verbs=("rights:grant",))
    event = by_token(made, "t1", "directory", cmd.SyncGroup, group="group:admins", source="scim", added=("ann",))
    assert isinstance(event, ev.GroupSynced)


@pytest.mark.parametrize("kind", [cmd.SuspendPrincipal, cmd.AdmitPrincipal])
def test_a_principal_with_more_roles_than_the_sender_keeps_its_state(kind: Any) -> None:
    """Either takes or gives roles that the sender may not take or give."""
    made = lead_of_all()
    made.admit("boss")
    made.grant("boss", "admin", "cluster")
    if kind is cmd.AdmitPrincipal:
        made.send(cmd.SuspendPrincipal(id=made.id(), principal="boss"))
    (event,) = made.send(kind(id=made.id(), principal="boss", user="lead"))
    assert refused(event, "denied")
    made.send(cmd.SuspendPrincipal(id=made.id(), principal="ann"))
    (event,) = made.send(kind(id=made.id(), principal="ann", user="lead"))
    assert not isinstance(event, ev.AccessCommandRejected)


def test_the_last_admin_is_kept_where_one_message_takes_a_grant_from_all_of_its_sources() -> None:
    """A file and a person have both granted it; each takes its own back, and then the other admin is the last."""
    made = world("ann")
    entry, mine = (cmd.RoleEntry(subject=each, role="admin", scope="cluster") for each in ("ann", "root"))
    made.send(cmd.GrantRole(id=made.id(), grant=entry))
    made.send(cmd.ApplyRoles(id=made.id(), source="file", scope="cluster", grants=(entry,)))
    events = made.send(
        cmd.RevokeRole(id=made.id(), grant=entry),
        cmd.ApplyRoles(id=made.id(), source="file", scope="cluster", grants=()),
        cmd.RevokeRole(id=made.id(), grant=mine),
    )
    assert refused(events[-1], "last_admin")
    assert made.core.state.access.admins() == {"root"}
