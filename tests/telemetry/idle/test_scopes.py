"""Precedence of policies: the narrowest of each rule, within the bounds of the wider ones; others are refused by name."""

import pytest

from fairlead_rights.command_rights import COMMAND_NEEDS, EVENT_NEEDS, Need
from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import ApplyIdlePolicies, ExtendJob, Undecodable
from fairlead_telemetry.idle.decide.validation import policy_refusal
from fairlead_telemetry.idle.scopes import policies_in_force
from fairlead_telemetry.idle.state import JobOwner
from tests.kit.idle_world import MINUTE, Scene, names, policy

SOFT = policy(may_soften=True, after_max_ns=60 * MINUTE)


def counts(policies: dict[str, tuple[IdlePolicy, ...]], **birth: str) -> dict[str, str]:
    """{rule: scope whose policy counts}"""
    found = policies_in_force(policies, JobOwner(**{"user": "ada", "project": "llm", "kind": "session"} | birth))
    return {rule: each.scope for rule, each in found.items()}


def test_of_each_rule_the_narrowest_counts() -> None:
    """User before project before global; a rule of which a narrow scope says nothing is the wider one's."""
    life = policy(rule="lifetime", after_ns=60 * MINUTE)
    policies = {"global": (SOFT, life), "project:llm": (SOFT,), "user:ada": (SOFT,), "user:bob": (SOFT,)}
    assert counts(policies) == {"utilization": "user:ada", "lifetime": "global"}
    assert counts(policies, user="eve") == {"utilization": "project:llm", "lifetime": "global"}
    assert counts(policies, user="eve", project="hep") == {"utilization": "global", "lifetime": "global"}
    assert counts({}) == {}


def test_a_policy_speaks_of_its_kinds_only() -> None:
    """One for sessions leaves batch jobs to the wider scope."""
    sessions = policy(kinds=("session",), may_soften=True)
    policies = {"global": (policy(),), "user:ada": (sessions,)}
    assert counts(policies) == {"utilization": "user:ada"}
    assert counts(policies, kind="batch") == {"utilization": "global"}


@pytest.mark.parametrize(
    ("narrow", "field"),
    [
        ({"after_ns": 11 * MINUTE}, "after_ns"),
        ({"mode": "dry_run"}, "mode"),
        ({"mode": "on_demand"}, "mode"),
        ({"action": "warn"}, "action"),
        ({"action": "requeue"}, "action"),
        ({"notice_ns": 6 * MINUTE}, "notice_ns"),
        ({"extend_ns": MINUTE, "extensions_max": 1}, "extend_ns"),
        ({"below": {"gpu": 49}}, "below.gpu"),
        ({"below": {"gpu": 50, "cpu": 100}}, "below.cpu"),
    ],
)
def test_a_narrower_policy_beyond_the_bounds_is_refused(narrow: dict, field: str) -> None:
    """By the field, the bound and whose it is; and where the wider one came later, the narrower has no say."""
    scene = Scene(policy())
    before = scene.cell.core.snapshot()
    refused = scene.set("user:ada", policy(**narrow))
    assert isinstance(refused, ev.TelemetryCommandRejected)
    assert refused.code == "beyond_bounds"
    assert f"policies[0].{field}:" in refused.message
    assert "scope global" in refused.message
    assert scene.cell.core.snapshot() == before
    assert counts({"global": (policy(),), "user:ada": (policy(**narrow),)}) == {"utilization": "global"}
    assert counts({"global": (policy(),), "project:llm": (policy(**narrow),)}) == {"utilization": "global"}


@pytest.mark.parametrize(
    "narrow",
    [
        {"after_ns": 60 * MINUTE},
        {"mode": "dry_run"},
        {"action": "note"},
        {"notice_ns": 50 * MINUTE},
        {"below": {"gpu": 10, "cpu": 5}},
    ],
)
def test_policies_may_be_relaxed_within_their_bounds(narrow: dict) -> None:
    """The time up to its own bound, other fields freely."""
    scene = Scene(SOFT)
    assert names([scene.set("user:ada", policy(**narrow))]) == ["IdlePoliciesSet"]
    assert names([scene.set("user:ada", policy(after_ns=61 * MINUTE))]) == ["TelemetryCommandRejected"]


def test_stricter_is_always_allowed() -> None:
    """Sooner, harder, for more."""
    strict = policy(after_ns=MINUTE, notice_ns=0, below={"gpu": 100})
    assert names([Scene(policy(mode="dry_run", action="warn")).set("project:llm", strict)]) == ["IdlePoliciesSet"]


def test_a_policy_of_a_user_is_held_against_those_of_the_own_projects() -> None:
    """Of those in which the user has jobs now, of which the first bound that is broken is named; of others nothing is known."""
    scene = Scene(SOFT)
    scene.set("project:llm", policy(after_max_ns=20 * MINUTE, after_ns=10 * MINUTE))
    long = policy(after_ns=30 * MINUTE)
    assert names([scene.set("user:ada", long)]) == ["IdlePoliciesSet"], "no job of ada's is in the project"
    scene.run("1", project="llm")
    refused = scene.set("user:ada", long)
    assert isinstance(refused, ev.TelemetryCommandRejected)
    assert (refused.code, refused.message) == (
        "beyond_bounds",
        "policies[0].after_ns: 30m is beyond the bound of scope project:llm, 20m; stay within it",
    )
    assert names([scene.set("user:ada", policy(after_ns=20 * MINUTE))]) == ["IdlePoliciesSet"]
    assert names([scene.set("user:bob", long)]) == ["IdlePoliciesSet"]


def apply(scene: Scene, **scopes: tuple[IdlePolicy, ...]) -> list[ev.TelemetryEvent]:
    """Policies of several scopes at once, `project_llm=…`; the answer."""
    named = {name.replace("_", ":"): policies for name, policies in scopes.items()}
    return scene.cell.ask(ApplyIdlePolicies(id="a", user="ops", scopes=named))


def test_several_scopes_are_set_together() -> None:
    """One event for each, held against each other as they will be, whatever their order; none of its own takes a say away."""
    scene = Scene(policy(), scope="user:bob")
    hour = policy(after_ns=60 * MINUTE)
    events = apply(scene, user_ada=(hour,), project_llm=(hour,), **{"global": (SOFT,)}, user_bob=())
    assert names(events) == ["IdlePoliciesSet"] * 4
    assert scene.cell.core.state.policies == {"user:ada": (hour,), "project:llm": (hour,), "global": (SOFT,)}


def test_of_several_scopes_none_is_set_where_one_is_refused() -> None:
    """Every problem is named, in its scope; those of the file's own project and global one, too."""
    scene = Scene(SOFT)
    scene.run("1", project="llm")
    before = scene.cell.core.snapshot()
    [refused] = apply(
        scene,
        user_ada=(policy(after_ns=40 * MINUTE, notice_ns=9 * MINUTE),),
        project_llm=(policy(),),
        project_hep=(policy(after_ns=90 * MINUTE),),
    )
    assert isinstance(refused, ev.TelemetryCommandRejected)
    assert (refused.code, refused.message.splitlines()) == (
        "beyond_bounds",
        [
            "scopes.user:ada[0].after_ns: 40m is beyond the bound of scope project:llm, 10m; stay within it",
            "scopes.project:hep[0].after_ns: 1h 30m is beyond the bound of scope global, 1h; stay within it",
        ],
    )
    [refused] = apply(scene, user_ada=(policy(after_ns=0),), project_llm=(policy(notice_ns=-1),), nobody=())
    assert isinstance(refused, ev.TelemetryCommandRejected)
    assert [line.partition(": ")[0] for line in refused.message.splitlines()] == [
        "scopes.user:ada[0].after_ns",
        "scopes.project:llm[0].notice_ns",
        "scope",
    ]
    assert names(apply(scene)) == ["TelemetryCommandRejected"]
    assert scene.cell.core.snapshot() == before


def test_a_project_bounds_its_users_by_precedence() -> None:
    """The owner of a job may change after a policy was set; beyond the project's bounds, the project's policy counts."""
    policies = {"project:llm": (policy(),), "user:ada": (policy(after_ns=30 * MINUTE),)}
    assert counts(policies) == {"utilization": "project:llm"}
    assert counts(policies, project="hep") == {"utilization": "user:ada"}


@pytest.mark.parametrize(
    ("scope", "wanted", "what"),
    [
        ("cluster", (policy(),), 'scope: expected "global"'),
        ("user:", (policy(),), "scope: expected"),
        ("global", (policy(), policy()), "policies[1].rule: utilization is there twice"),
        ("global", (policy(after_ns=0),), "policies[0].after_ns: expected"),
        ("global", (policy(notice_ns=-1),), "policies[0].notice_ns: expected"),
        ("global", (policy(below={}),), "policies[0].below: found 0 signals"),
        ("global", (policy(below={"gpu": 0}),), "policies[0].below.gpu: expected 1"),
        ("global", (policy(rule="lifetime", below={"gpu": 5}),), "policies[0].below: found 1 signals"),
        ("global", (policy(action="shrink"),), "policies[0].shrink_ns: found 0"),
        ("global", (policy(shrink_ns=5),), "policies[0].shrink_ns: found 5"),
        ("global", (policy(extend_ns=5),), "policies[0].extend_ns: 5 with extensions_max 0"),
        ("global", (policy(extensions_max=2000),), "policies[0].extensions_max: expected"),
        ("global", (policy(after_max_ns=5),), "policies[0].after_max_ns: expected"),
    ],
)
def test_invalid_policies_are_refused_by_field(scope: str, wanted: tuple[IdlePolicy, ...], what: str) -> None:
    """Expected, found, path."""
    refusal = policy_refusal({scope: wanted}, {scope: wanted}, {}, "policies")
    assert refusal is not None and refusal.code == "invalid"
    assert what in refusal.message


def test_a_changed_policy_withdraws_the_decisions_of_the_old_one() -> None:
    """Another, or none: JobActive; the same again: nothing."""
    scene = Scene(SOFT)
    scene.run("1")
    assert names(scene.go(11)) == ["JobIdle"]
    scene.set("global", SOFT)
    assert scene.go(1) == []
    scene.set("user:ada", policy(after_ns=5 * MINUTE))
    assert [event.reason for _, event in scene.cell.published if isinstance(event, ev.JobActive)] == ["policy"]
    [idle] = scene.go(1)
    assert isinstance(idle, ev.JobIdle)
    assert idle.scope == "user:ada"
    scene.set("user:ada")
    scene.set("global")
    scene.go(60)
    assert names([event for _, event in scene.cell.published[-3:]]) == [
        "IdlePoliciesSet",
        "JobActive",
        "IdlePoliciesSet",
    ]


def test_each_scope_asks_back_by_its_own_rule() -> None:
    """Utilization, interaction and lifetime at global, project and user: each run is asked back by what counts for it."""
    scene = Scene(policy(may_soften=True, after_max_ns=9999 * MINUTE), policy(rule="lifetime", after_ns=900 * MINUTE))
    scene.set("project:llm", policy(rule="interaction", after_ns=20 * MINUTE))
    scene.set("user:bob", policy(rule="lifetime", after_ns=40 * MINUTE), policy(after_ns=300 * MINUTE))
    scene.run("1", user="eve")
    scene.run("2", user="eve", project="llm")
    scene.run("3", user="bob")
    scene.now["2"] = scene.now["3"] = {"gpu": 500}
    scene.go(60)
    asked = [
        (event.job, event.scope, event.rule)
        for _, event in scene.cell.published
        if isinstance(event, ev.ReclaimRequested)
    ]
    assert asked == [("1", "global", "utilization"), ("2", "project:llm", "interaction"), ("3", "user:bob", "lifetime")]


EXTENDABLE = policy(extend_ns=30 * MINUTE, extensions_max=2)


def test_an_extension_suspends_every_policy() -> None:
    """For the requested time, counted; then the whole time counts again."""
    scene = Scene(EXTENDABLE, policy(rule="lifetime", after_ns=20 * MINUTE, extend_ns=60 * MINUTE, extensions_max=5))
    scene.run("1")
    scene.go(11)
    extended = scene.extend("1", for_ns=20 * MINUTE)
    assert isinstance(extended, ev.JobExtended)
    assert (extended.until_ns, extended.count, extended.by) == (scene.cell.now_ns + 20 * MINUTE, 1, "ada")
    assert scene.go(19) == []
    assert sorted(names(scene.go(2))) == ["JobIdle", "JobIdle"]


@pytest.mark.parametrize(
    ("job", "user", "for_ns", "code", "what"),
    [
        ("1", "ada", 31 * MINUTE, "beyond_bounds", "for: expected at most"),
        ("1", "ada", -1, "beyond_bounds", "for: expected at most"),
        ("7", "ada", 0, "not_found", 'no job "7"'),
        ("2", "ada", 0, "conflict", "is an array"),
    ],
)
def test_extensions_that_are_refused(job: str, user: str, for_ns: int, code: str, what: str) -> None:
    """Length, job: each by its reason, and nothing has changed."""
    scene = Scene(EXTENDABLE)
    scene.run("1")
    scene.run("2_4")
    before = scene.cell.core.snapshot()
    refused = scene.extend(job, user=user, for_ns=for_ns)
    assert isinstance(refused, ev.TelemetryCommandRejected)
    assert (refused.code, what in refused.message) == (code, True), refused.message
    assert scene.cell.core.snapshot() == before


def test_an_extension_is_of_those_whom_the_table_of_rights_names() -> None:
    """The core asks no more than the table does for the command and for its event: `job:cancel`, which an operator has on jobs of others."""
    scene = Scene(EXTENDABLE)
    scene.run("1")
    extended = scene.extend("1", user="eve")
    assert isinstance(extended, ev.JobExtended) and extended.by == "eve"
    needs = [COMMAND_NEEDS[ExtendJob](ExtendJob(id="x", job="1")), EVENT_NEEDS[ev.JobExtended](extended)]
    assert needs == [[Need("job:cancel", "job", "1")]] * 2


def test_extensions_come_to_an_end() -> None:
    """So many as the policy allows, also within one message; and none once the run was asked back, or where nothing acts."""
    scene = Scene(EXTENDABLE)
    scene.run("1")
    wishes = [ExtendJob(id=f"w{number}", user="ada", job="1") for number in range(3)]
    assert names(scene.cell.ask(*wishes)) == ["JobExtended", "JobExtended", "TelemetryCommandRejected"]
    assert names(scene.go(60)) == ["JobIdle", "ReclaimRequested"]
    late = scene.extend("1")
    assert isinstance(late, ev.TelemetryCommandRejected)
    assert "was asked back already" in late.message

    scene = Scene(policy(mode="dry_run", extend_ns=5, extensions_max=1))
    scene.run("1")
    idle = scene.extend("1")
    assert isinstance(idle, ev.TelemetryCommandRejected)
    assert "nothing to extend" in idle.message


def test_an_unreadable_command_is_recorded() -> None:
    """Like in other services: by its digest, and never retried."""
    scene = Scene()
    [rejected] = scene.cell.ask(Undecodable(digest="ab" * 32, message="expected an object"))  # type: ignore[arg-type]
    assert isinstance(rejected, ev.TelemetryCommandRejected)
    assert (rejected.code, rejected.cause, rejected.digest) == ("undecodable", "cmd:abababababababab", "ab" * 32)
