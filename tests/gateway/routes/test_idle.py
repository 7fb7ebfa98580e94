"""Idle runs from outside: documents, routes, metrics, and why, for every user whom they concern."""

import asyncio
from typing import Any

import pytest

from fairlead_bus.core import NOTHING, Decision
from fairlead_bus.input_source import CommandSource
from fairlead_bus.service import Service
from fairlead_gateway.monitoring.metrics import ClusterCollector
from fairlead_gateway.routes.documents import job_document
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.idle_documents import idle_document
from fairlead_gateway.why.dominant_reason import reason_of
from fairlead_schemas.http.api import Reason
from fairlead_schemas.policies.idle import IdleEvidence, IdlePolicy
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.logbook import (
    START_NS,
    Logbook,
    ended,
    joined,
    offered,
    placed,
    preempting,
    requeued,
    started,
    submitted,
)
from tests.gateway.world import GatewayWorld, gpus

EVIDENCE = (
    IdleEvidence(signal="gpu", highest=12, mean=3, threshold=50, samples=1200),
    IdleEvidence(signal="network", highest=811, mean=90, threshold=10_240, samples=1200),
)
TOLD = "GPU at most 1.2 % of 5 % for 20m, 1,200 samples; network at most 811 B/s of 10.0 KiB/s, 1,200 samples"
POLICY = IdlePolicy(
    rule="utilization", action="stop", below={"gpu": 50}, after_ns=20 * MINUTE_NS, notice_ns=5 * MINUTE_NS
)
RUNS: list[ev.Event] = [joined(), submitted(gpus=2), submitted("2", 2), offered(), placed(gpus=2), started()]


def idle(mode: Any = "always", action: Any = "stop", rule: Any = "utilization", reclaim_in_s: int = 300) -> ev.JobIdle:
    """Job 1 counts as idle since twenty minutes before the log's eighth second."""
    now_ns = START_NS + 7 * SECOND_NS
    return ev.JobIdle(
        cause="clock",
        job="1",
        attempt=1,
        scope="project:llm",
        rule=rule,
        action=action,
        mode=mode,
        since_ns=now_ns - 20 * MINUTE_NS,
        reclaim_at_ns=now_ns + reclaim_in_s * SECOND_NS if reclaim_in_s else 0,
        evidence=EVIDENCE,
    )


def asked(on_demand: bool = False, action: Any = "stop", attempt: int = 1) -> ev.ReclaimRequested:
    """Its notice is over."""
    return ev.ReclaimRequested(
        cause="clock",
        job="1",
        attempt=attempt,
        scope="project:llm",
        rule="utilization",
        action=action,
        on_demand=on_demand,
        since_ns=START_NS + 8 * SECOND_NS - 20 * MINUTE_NS,
        evidence=EVIDENCE,
    )


def foreseen() -> ev.ReclaimSimulated:
    """A dry run would have taken it back."""
    return ev.ReclaimSimulated(
        cause="clock",
        job="1",
        attempt=1,
        scope="global",
        rule="lifetime",
        action="stop",
        since_ns=START_NS,
        evidence=(),
    )


def active(rule: Any = "utilization", reason: Any = "active") -> ev.JobActive:
    """Record activity of a run."""
    return ev.JobActive(cause="clock", job="1", attempt=1, rule=rule, reason=reason, evidence=EVIDENCE[:1])


def extended(until_s: int = 3600, count: int = 1) -> ev.JobExtended:
    """Its owner extended it."""
    return ev.JobExtended(
        cause="cmd:x", job="1", attempt=1, until_ns=START_NS + until_s * SECOND_NS, count=count, by="ada"
    )


def stopped() -> ev.JobStopRequested:
    """The queue stops it."""
    return ev.JobStopRequested(cause="8.0", job="1", attempt=1, reason="idle", save=True)


def book_of(*events: ev.Event) -> Logbook:
    """A log with job 1 running, and these."""
    book = Logbook()
    for event in [*RUNS, *events]:
        book.write(event)
    return book


def why(*events: ev.Event, job: str = "1") -> Reason:
    """The reason after these; the same after a restart from a snapshot."""
    book = book_of(*events)
    reason = reason_of(book.views, book.views.jobs.rows[job], book.now_ns)
    again = Views.restore(book.views.snapshot())
    assert again is not None
    assert reason_of(again, again.jobs.rows[job], book.now_ns) == reason
    assert again.snapshot() == book.views.snapshot()
    return reason


# ---------------------------------------------------------------------------------------- why


@pytest.mark.parametrize(
    ("event", "then"),
    [
        (idle(), "at 2026-01-01T00:05:07.000Z it is stopped and its job ends, unless it is used or extended before"),
        (
            idle(action="requeue"),
            "at 2026-01-01T00:05:07.000Z it is stopped and waits again, unless it is used or extended before",
        ),
        (
            idle("on_demand"),
            "from 2026-01-01T00:05:07.000Z on it is reclaimed once a job waits for what it holds: then it is stopped and its job ends",
        ),
        (idle("dry_run", reclaim_in_s=0), "the policy is on trial, so nothing follows"),
        (idle(action="warn", reclaim_in_s=0), "its owner is notified, and nothing follows"),
    ],
)
def test_an_idle_run_shows_its_evidence_and_what_follows(event: ev.JobIdle, then: str) -> None:
    """And how to keep it."""
    reason = why(event)
    assert reason.code == "idle"
    assert reason.message == (
        "runs on n1 since 2026-01-01T00:00:06.000Z; idle since 2025-12-31T23:40:07.000Z under the utilization policy of "
        f"project:llm ({TOLD}); {then}"
    )
    assert (reason.detail["scope"], reason.detail["decided_at_sequence"]) == ("project:llm", 7)
    if event.reclaim_at_ns:
        assert reason.detail["next"] == "fairlead extend 1, or use it"


def test_a_reclaim_on_demand_may_happen_at_any_time() -> None:
    """The policy that requested it is shown before one that is about to."""
    reason = why(idle("on_demand"), asked(on_demand=True), idle(rule="lifetime"))
    assert "from now on it is reclaimed once a job waits" in reason.message
    assert reason.detail["rule"] == "utilization"


def test_a_run_idle_under_a_policy_without_action_runs() -> None:
    """No warning is shown."""
    assert why(idle(action="note", reclaim_in_s=0)).code == "running"


@pytest.mark.parametrize("back", [active(), ended()])
def test_a_run_that_is_used_again_just_runs(back: ev.Event) -> None:
    """And so does the next attempt."""
    reason = why(
        idle(),
        back,
        *(
            [requeued(reason="retry"), offered(attempt=2), placed(attempt=2), started(attempt=2)]
            if back != active()
            else []
        ),
    )
    assert reason.code == "running"


def test_an_extended_run_says_until_when() -> None:
    """No policy acts on it before."""
    reason = why(idle(), extended())
    assert (reason.code, reason.message) == (
        "extended",
        "runs on n1 since 2026-01-01T00:00:06.000Z; extended once: no idle policy acts on it before 2026-01-01T01:00:00.000Z",
    )
    assert "extended 2 times" in why(idle(), extended(), extended(7200, 2)).message


def test_a_run_that_was_taken_back_says_on_what_evidence() -> None:
    """While it is stopped, when it has failed for it, and while it waits again."""
    because = f"under the utilization policy of project:llm ({TOLD})"
    reason = why(idle(), asked(), stopped())
    assert reason.message == f"it is idle {because}; its notice is over, so it is being stopped, and its job ends"
    failed = ev.JobFailed(cause="9.0", job="1", attempt=1, reason="idle", message="it lay idle")
    reason = why(idle(), asked(), stopped(), active(), ended(outcome="stopped"), failed)
    assert reason.message == f"reclaimed: idle {because}; ended at 2026-01-01T00:00:12.000Z"
    assert (reason.code, reason.detail["reason"], reason.detail["scope"]) == ("failed", "idle", "project:llm")
    waits = (idle(), asked(action="requeue"), stopped(), ended(outcome="stopped"), requeued(reason="idle"))
    assert "and queued again" in why(*waits[:3]).message
    reason = why(*waits)
    assert (reason.code, reason.message) == (
        "reclaimed",
        f"reclaimed: idle {because}; now waits for its turn; it is next",
    )


def test_a_stop_that_crossed_a_sign_of_life_says_so() -> None:
    """It waits again."""
    assert "and has been used since" in why(asked(), active(), stopped()).message


@pytest.mark.parametrize("action", ["stop", "requeue"])
def test_a_preempted_idle_run_shows_its_beneficiary_and_evidence(action: Any) -> None:
    """During the stop, and afterwards; and the job that got its GPUs shows their origin."""
    taken: list[ev.Event] = [
        idle("on_demand", action),
        asked(on_demand=True, action=action),
        offered("2", 2),
        preempting("1", "2", "idle"),
    ]
    because = f"idle under the utilization policy of project:llm ({TOLD})"
    reason = why(*taken)
    assert f"; is asked to yield to job 2 ({because}) and ends within its grace" in reason.message
    assert (
        reason.detail["next"]
        == {
            "stop": "nothing: its job ends, as the policy requires",
            "requeue": "nothing: it is queued again and continues with the rest of its time",
        }[action]
    )
    assert "1 job was asked to yield for it: 1" in why(*taken, job="2").message
    given: list[ev.Event] = [*taken, ended(outcome="stopped", preempted=True), placed("2"), started("2")]
    assert why(*given, job="2").message == (
        f"runs on n1 since 2026-01-01T00:00:13.000Z; it has what job 1 gave back: {because}"
    )
    if action == "requeue":
        reason = why(*given, requeued(reason="idle"))
        assert reason.message.startswith(f"yielded to job 2 ({because})")
        assert (reason.code, reason.detail["times"]) == ("preempted", 1)


# ---------------------------------------------------------------------------------------- documents


def test_a_jobs_document_has_the_countdown_and_the_evidence() -> None:
    """Until it is used again."""
    book = book_of(idle("on_demand"))
    document = job_document(book.views, book.views.jobs.rows["1"], book.now_ns).idle
    assert document is not None
    assert (document.rule, document.since, document.reclaim_at, document.asked) == (
        "utilization",
        "2025-12-31T23:40:07.000Z",
        "2026-01-01T00:05:07.000Z",
        False,
    )
    assert (document.words, document.evidence) == (TOLD, list(EVIDENCE))
    book.write(extended())
    document = job_document(book.views, book.views.jobs.rows["1"], book.now_ns)
    assert (document.idle, document.extended_until) == (None, "2026-01-01T01:00:00.000Z")


def test_a_shortened_lease_ends_at_its_countdown() -> None:
    """The countdown is that of the lease."""
    until_ns = START_NS + 900 * SECOND_NS
    book = book_of(
        idle(action="shrink"),
        ev.LeaseShrunk(cause="clock", job="1", attempt=1, until_ns=until_ns, scope="project:llm", rule="utilization"),
    )
    (run,) = idle_document(book.views).items
    assert run.idle.reclaim_at == "2026-01-01T00:15:00.000Z"
    assert (
        "at 2026-01-01T00:15:00.000Z its lease ends"
        in why(
            idle(action="shrink"),
            ev.LeaseShrunk(
                cause="clock", job="1", attempt=1, until_ns=until_ns, scope="project:llm", rule="utilization"
            ),
        ).message
    )


def test_savings_count_from_where_a_dry_run_would_have_acted() -> None:
    """Until the run is active again, extended or over; until now for one that is still idle."""
    still = book_of(foreseen(), foreseen())
    assert [(s.scope, s.rule, s.runs, s.gpu_hours) for s in idle_document(still.views).savings] == [
        ("global", "lifetime", 1, round(2 * 1 / 3600, 3))
    ]
    for end in (active("lifetime"), extended(), ended()):
        book = book_of(foreseen(), *[joined("n2")] * 3599, end)
        found = idle_document(book.views).savings
        for _ in range(100):
            book.write(joined("n2"))
        assert [(saved.runs, saved.gpu_hours) for saved in idle_document(book.views).savings] == [(1, 2.0)]
        assert idle_document(book.views).savings == found
    assert book_of(foreseen(), active("utilization")).views.jobs.rows["1"].foreseen


@pytest.mark.parametrize(
    ("ends", "came_alive"),
    [
        ([active("lifetime")], 1),
        ([active("utilization")], 0),
        ([extended()], 0),
        ([ended()], 0),
        ([active("lifetime", "unseen")], 0),
        ([active("lifetime"), foreseen(), active("lifetime")], 2),
    ],
)
def test_savings_say_what_came_alive(ends: list[ev.Event], came_alive: int) -> None:
    """By the rule that would have acted: activity alone, as in SQL's idle_savings."""
    (saved,) = idle_document(book_of(foreseen(), *ends).views).savings
    assert saved.came_alive == came_alive


def test_an_earlier_attempt_says_nothing_of_this_one() -> None:
    """Events that come late, of runs that have ended or jobs that are gone, change no row."""
    book = book_of(ended(), requeued(reason="retry"), offered(attempt=2), placed(attempt=2), started(attempt=2))
    before = book.views.jobs.rows["1"].idle
    book.write(idle(), asked(), foreseen(), active(), extended(), asked(attempt=9))
    row = book.views.jobs.rows["1"]
    assert (before, row.idle, row.foreseen, row.extended_until_ns, book.views.idle.idle) == ((), (), (), 0, {})


async def test_prometheus_counts_idle_jobs() -> None:
    """Jobs and GPUs by queue, mode, and whether a reclaim is requested."""
    book = book_of(idle("on_demand"), asked(on_demand=True))
    collector = ClusterCollector(book.views)
    await collector.look()
    found = {
        metric.name: [(tuple(s.labels.values()), s.value) for s in metric.samples]
        for metric in collector.collect()
        if "idle" in metric.name
    }
    labels = ("default", "on_demand", "asked")
    assert found == {"fairlead_idle_jobs": [(labels, 1)], "fairlead_idle_gpus": [(labels, 2)]}


# ---------------------------------------------------------------------------------------- routes


class PlayedTelemetry:
    """A core that takes every policy, and extends every job but one."""

    writer = "telemetry"
    schema = "played"

    def evolve(self, seq: int, commit: Any) -> None:
        """It keeps nothing."""

    def decide(self, inputs: Any, now_ns: int) -> Decision:
        """Each command has its answer."""
        events = [event for each in inputs for command in each.body for event in self._answers(command, now_ns)]
        return Decision(events, {each.source: each.position for each in inputs}) if inputs else NOTHING

    def _answers(self, command: Any, now_ns: int) -> list[Any]:
        if not isinstance(command, cmd.ApplyIdlePolicies):
            return [self._answer(command, now_ns)]
        cause = f"cmd:{command.id}"
        if "user:eve" in command.scopes:
            message = "scopes.user:eve[0].mode: dry_run is beyond the bound\nscopes.global[0].after_ns: too long"
            return [ev.TelemetryCommandRejected(cause=cause, command=command.id, code="beyond_bounds", message=message)]
        return [
            ev.IdlePoliciesSet(cause=cause, scope=scope, policies=of, by=command.user)
            for scope, of in command.scopes.items()
        ]

    def _answer(self, command: Any, now_ns: int) -> Any:
        cause = f"cmd:{command.id}"
        if isinstance(command, cmd.SetIdlePolicies):
            return ev.IdlePoliciesSet(cause=cause, scope=command.scope, policies=command.policies, by=command.user)
        if command.for_ns > 7200 * SECOND_NS:
            message = "its policy allows extensions of at most 2h"
            return ev.TelemetryCommandRejected(cause=cause, command=command.id, code="beyond_bounds", message=message)
        return ev.JobExtended(
            cause=cause, job=command.job, attempt=1, until_ns=now_ns + command.for_ns, count=1, by=command.user
        )

    def split(self, item: Any) -> list[Any]:
        return []

    def reject(self, item: Any, error: str, now_ns: int) -> Decision:
        return NOTHING

    def wake_at(self) -> int | None:
        return None

    def snapshot(self) -> bytes:
        return b"{}"

    @classmethod
    def restore(cls, data: bytes) -> "PlayedTelemetry":
        return cls()

    def statistics(self) -> dict[str, int]:
        return {}


async def ask(world: GatewayWorld, method: str, path: str, body: Any = None, status: int = 200) -> dict[str, Any]:
    """One request; the answer's document."""
    answer = await world.http.request(method, path, json=body, headers={"x-fairlead-user": "ops"})
    assert answer.status_code == status, answer.text
    return answer.json()


def spawn_telemetry(world: GatewayWorld) -> None:
    """The service, with the played core."""
    sources = [CommandSource("telemetry")]
    world.spawn(Service(world.hub.connect(), PlayedTelemetry, writer="telemetry", sources=sources))  # type: ignore[arg-type] -- played


async def test_policies_are_set_by_scope_and_read_back_unchanged() -> None:
    """A scope with none is gone."""
    policy = {
        "rule": "utilization",
        "action": "stop",
        "mode": "on_demand",
        "below": {"gpu": "5%"},
        "after": "20m",
        "notice": "5m",
    }
    async with GatewayWorld() as world:
        spawn_telemetry(world)
        answer = await ask(world, "PUT", "/v1/idle/project:llm", {"policies": [policy]})
        assert (answer["scope"], answer["policies"], answer["by"]) == ("project:llm", [policy], "ops")
        assert [scope["scope"] for scope in (await ask(world, "GET", "/v1/idle"))["policies"]] == ["project:llm"]
        assert (await ask(world, "PUT", "/v1/idle/project:llm", {"policies": []}))["policies"] == []
        assert (await ask(world, "GET", "/v1/idle"))["policies"] == []


async def test_several_scopes_are_set_at_once_or_every_problem_is_named() -> None:
    """The answer has each scope as it is now; of a refusal nothing has changed."""
    policy = {"rule": "lifetime", "action": "warn", "mode": "always", "after": "7d", "notice": "5m"}
    async with GatewayWorld() as world:
        spawn_telemetry(world)
        answer = await ask(world, "POST", "/v1/idle:apply", {"scopes": {"user:ada": [policy], "global": [policy]}})
        assert [(scope["scope"], scope["policies"], scope["by"]) for scope in answer["items"]] == [
            ("user:ada", [policy], "ops"),
            ("global", [policy], "ops"),
        ]
        refused = await ask(world, "POST", "/v1/idle:apply", {"scopes": {"user:eve": [policy], "global": []}}, 422)
        assert (refused["detail"], [error["field"] for error in refused["errors"]]) == (
            "2 problems; nothing was changed",
            ["scopes.user:eve[0].mode", "scopes.global[0].after_ns"],
        )
        assert [scope["scope"] for scope in (await ask(world, "GET", "/v1/idle"))["policies"]] == ["global", "user:ada"]
        wrong = {"scopes": {"everybody": [], "global": [policy | {"after": "soon"}]}}
        fields = [error["field"] for error in (await ask(world, "POST", "/v1/idle:apply", wrong, 422))["errors"]]
        assert fields == ["scopes.everybody", "scopes.global[0].after"]


async def test_a_job_is_extended_or_the_refusal_says_why_not() -> None:
    """The answer is its document."""
    async with GatewayWorld() as world:
        spawn_telemetry(world)
        job = await world.run(await world.node("n1"), resources=gpus(1))
        answer = await ask(world, "POST", f"/v1/jobs/{job}:extend", {"for": "2h"})
        assert (answer["id"], answer["extended_until"] is not None) == (job, True)
        refused = await ask(world, "POST", f"/v1/jobs/{job}:extend", {"for": "3h"}, 422)
        assert (refused["type"].rpartition(":")[2], refused["detail"]) == (
            "beyond_bounds",
            "its policy allows extensions of at most 2h",
        )
        await ask(world, "POST", f"/v1/jobs/{job}:extend")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("POST", "/v1/jobs/404:extend", None, 404, ""),
        ("POST", "/v1/jobs/nope!:extend", None, 404, ""),
        ("POST", "/v1/jobs/404:extend", {"for": "soon"}, 422, "for"),
        ("POST", "/v1/jobs/404:extend", {"until": "2h"}, 422, "until"),
        ("PUT", "/v1/idle/everybody", {"policies": []}, 422, "scope"),
        ("PUT", "/v1/idle/global", {}, 422, "policies"),
        ("PUT", "/v1/idle/global", {"policies": [{"rule": "lifetime", "action": "stop"}]}, 422, "policies[0].after"),
        ("PUT", "/v1/idle/global", [], 422, ""),
    ],
)
async def test_a_malformed_request_names_its_field_and_stores_nothing(
    method: str, path: str, body: Any, status: int, field: str
) -> None:
    """The error has the expected value, and nothing is on the bus."""
    async with GatewayWorld() as world:
        problem = await ask(world, method, path, body, status)
        assert [error["field"] for error in problem.get("errors", [])] == ([field] if status == 422 else [])
        assert world.commands_stored() == 0


async def test_without_a_telemetry_service_a_request_is_kept_for_later() -> None:
    """202, with the command's sequence."""
    async with GatewayWorld(decision_wait_s=0.05) as world:
        answer = await ask(world, "PUT", "/v1/idle/global", {"policies": []}, 202)
        assert answer["command"]
        await asyncio.sleep(0)
        assert world.commands_stored() == 1


async def test_a_policy_of_one_person_is_named_by_login_name() -> None:
    """The log has the id, to which the owners of jobs are compared; answers have the name, also to the person alone."""
    policy = {"rule": "lifetime", "action": "warn", "mode": "always", "after": "7d", "notice": "5m"}
    async with AccountsWorld() as world:
        spawn_telemetry(world)  # type: ignore[arg-type] -- needs the hub alone
        ada = await world.person("ada")
        _, session = await world.session(ada)
        answer = await world.ask("PUT", "/v1/idle/user:ada", {"policies": [policy]})
        assert answer["scope"] == "user:ada" and list(world.gateway.views.idle.policies) == [f"user:{ada}"]
        applied = await world.ask("POST", "/v1/idle:apply", {"scopes": {f"user:{ada}": [], "global": [policy]}})
        assert [each["scope"] for each in applied["items"]] == ["user:ada", "global"]
        await world.ask("PUT", "/v1/idle/user:ada", {"policies": [policy]})
        seen = await world.ask("GET", "/v1/idle", token=session)
        assert [each["scope"] for each in seen["policies"]] == ["global", "user:ada"]
        for method, path, body in (
            ("PUT", "/v1/idle/user:eve", {"policies": []}),
            ("POST", "/v1/idle:apply", {"scopes": {"user:eve": []}}),
            ("POST", "/v1/idle:apply", {"scopes": {"user:ada": [], f"user:{ada}": [policy]}}),
        ):
            await world.ask(method, path, body, status=422)
        assert len(world.gateway.views.idle.policies) == 2
