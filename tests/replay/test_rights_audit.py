"""Invariant I13: the log alone proves for every command that it was within its caller's rights."""

from typing import Any, get_args

import msgspec
import pytest

from fairlead_replay.rights_audit import CommandCount, RightsAudit
from fairlead_rights.command_rights import ACCOMPANYING, COMMAND_NEEDS, EVENT_NEEDS, REFUSALS
from fairlead_rights.done_by import done_by
from fairlead_schemas.queuefile.settings import POOL_LABEL, QueueSettings
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.authority import Authority
from fairlead_schemas.wire.resources import Request
from tests.kit.commits import commit_of
from tests.kit.placer_world import inventory

SPEC = msgspec.Raw(b"{}")
CLOCK: dict[str, Any] = {"cause": "clock"}


class Log:
    """A log that is judged as it grows. Ann and bob are people, ann with a token and a session; eve is unknown."""

    def __init__(self) -> None:
        self.audit = RightsAudit()
        self.sequence = 0
        self._commands = 0
        self.add("queue", ev.QueueConfigured(**CLOCK, path="research"), ev.QueueConfigured(**CLOCK, path="prod"))
        for person in ("ann", "bob"):
            self.add("access", ev.PrincipalAdmitted(**CLOCK, principal=person, kind="person"))
            self.add(
                "access",
                ev.SessionOpened(**CLOCK, session=f"i{person}", principal=person, provider="local", expires_ns=9),
            )

    def add(self, writer: str, *events: ev.Event) -> str:
        """Add a commit; what is wrong with it."""
        self.sequence += 1
        return self.audit.take(self.sequence, commit_of(list(events), writer=writer, n=self.sequence, at_ns=1))

    def granted(self, subject: str, role: Any, scope: str) -> None:
        """Grant a role."""
        assert not self.add("access", ev.RoleGranted(**CLOCK, subject=subject, role=role, scope=scope, source="person"))

    def revoked(self, subject: str, role: Any, scope: str) -> None:
        """Take a role back."""
        assert not self.add("access", ev.RoleRevoked(**CLOCK, subject=subject, role=role, scope=scope, source="person"))

    def by(self, person: str, *, rights: int | None = None, via: str = "", act_as: str = "") -> dict[str, Any]:
        """Cause and authority of an answer to a command of a person, whose rights are those of the newest sequence."""
        self._commands += 1
        authority = Authority(
            principal=person,
            via=via or f"session:i{person}",
            rights=self.sequence if rights is None else rights,
            act_as=act_as,
        )
        return {"cause": f"cmd:c{self._commands}", "authority": authority}

    def submitted(self, job: str, owner: str, queue: str = "research", **more: Any) -> str:
        """A job is accepted."""
        return self.add("queue", submitted(job, owner, queue, **(more or self.by(owner))))


def submitted(job: str, owner: str, queue: str = "research", **more: Any) -> ev.JobSubmitted:
    """A job."""
    return ev.JobSubmitted(job=job, name="n", queue=queue, user=owner, request=Request(), spec=SPEC, **more)


def test_a_command_within_its_callers_rights_passes() -> None:
    """By a grant in its queue; and the owner's right over its own job, which needs none."""
    log = Log()
    log.granted("ann", "member", "queue:research")
    assert log.submitted("1", "ann") == ""
    assert log.add("queue", ev.JobCancelled(**log.by("ann"), job="1", by="ann")) == ""
    assert log.audit.commands == CommandCount(judged=2)


def test_a_command_without_a_right_is_found() -> None:
    """In another queue; on another's job; by one who holds nothing."""
    log = Log()
    log.granted("ann", "member", "queue:research")
    assert log.submitted("1", "ann", "prod") == (
        "I13: JobSubmitted of c1: at sequence 6 ann had no job:submit on queue:prod pool:default owner:ann"
    )
    assert log.submitted("2", "ann") == ""
    assert "bob had no job:cancel on queue:research" in log.add("queue", ev.JobHeld(**log.by("bob"), job="2", by="bob"))


def test_a_project_needs_a_right_of_its_own() -> None:
    """The queue's is not enough for a job of a named project; the default one is free."""
    log = Log()
    log.granted("ann", "member", "queue:research")
    wrong = log.add("queue", submitted("1", "ann", project="llm", **log.by("ann")))
    assert wrong.endswith("ann had no job:submit on project:llm")
    assert log.add("queue", submitted("2", "ann", project="default", **log.by("ann"))) == ""
    log.granted("ann", "viewer", "project:llm")
    assert log.add("queue", submitted("3", "ann", project="llm", **log.by("ann"))) != ""
    log.granted("ann", "member", "project:llm")
    assert log.add("queue", submitted("4", "ann", project="llm", **log.by("ann"))) == ""


def test_a_move_needs_the_source_and_the_target_with_the_jobs_project() -> None:
    """`job:cancel` where the job is, and `job:submit` where it goes, to which a role in its project counts."""
    log = Log()
    log.granted("ann", "member", "queue:research")
    log.granted("ann", "member", "project:llm")
    for job in "123":
        assert log.add("queue", submitted(job, "ann", project="llm", **log.by("ann"))) == ""

    def moved(job: str, person: str) -> str:
        return log.add("queue", ev.JobMoved(**log.by(person), job=job, queue="prod", by=person))

    log.granted("bob", "member", "queue:prod")
    assert "bob had no job:cancel on queue:research" in moved("1", "bob")
    log.granted("bob", "operator", "queue:research")
    assert moved("2", "bob") == ""
    assert moved("3", "ann") == "", "a role in the job's project counts at the target"


def test_grants_end_with_their_queue() -> None:
    """A command by a grant at a queue that was removed since, and made again, is found."""
    log = Log()
    log.granted("ann", "member", "queue:research")
    assert log.submitted("1", "ann") == ""
    before = log.sequence
    assert log.add("queue", ev.QueueRemoved(**CLOCK, path="research")) == ""
    assert log.add("queue", ev.QueueConfigured(**CLOCK, path="research")) == ""
    assert "had no job:submit" in log.submitted("2", "ann")
    assert log.submitted("3", "ann", **log.by("ann", rights=before)) == ""


def test_rights_are_those_of_the_sequence_that_the_authority_names() -> None:
    """What was revoked while the command travelled does not count; what was revoked or granted around the judgement does."""
    log = Log()
    log.granted("ann", "member", "queue:research")
    before = log.sequence
    log.revoked("ann", "member", "queue:research")
    assert log.submitted("1", "ann", **log.by("ann", rights=before)) == ""
    assert "had no job:submit" in log.submitted("2", "ann", **log.by("ann", rights=before + 1))
    assert "had no job:submit" in log.submitted("3", "ann", **log.by("ann", rights=before - 1))


def test_a_sequence_that_is_not_before_the_answer_is_found() -> None:
    """Rights of the future can be those of a log that was never so."""
    log = Log()
    log.granted("ann", "member", "queue:research")
    assert "which is not before it" in log.submitted("1", "ann", **log.by("ann", rights=log.sequence + 1))


def test_a_credential_must_count_and_be_the_principals_own() -> None:
    """Ended, never issued, another person's, or of a suspended principal."""
    log = Log()
    log.granted("ann", "member", "queue:research")
    assert "session:x did not count" in log.submitted("1", "ann", **log.by("ann", via="session:x"))
    assert "is bob's, not ann's" in log.submitted("2", "ann", **log.by("ann", via="session:ibob"))
    assert not log.add("access", ev.SessionEnded(**CLOCK, session="iann", reason="signed_out"))
    assert "session:iann did not count" in log.submitted("3", "ann")
    assert log.submitted("4", "ann", **log.by("ann", rights=log.sequence - 3)) == ""


def test_a_token_only_takes_rights_away() -> None:
    """Its verbs and its scopes bound what its principal may."""
    log = Log()
    log.granted("ann", "admin", "cluster")
    issued = ev.TokenIssued(
        **CLOCK,
        token="t",
        principal="ann",
        kind="person",
        expires_ns=9,
        verbs=("job:submit",),
        scopes=("queue:research",),
    )
    assert not log.add("access", issued)
    assert log.submitted("1", "ann", **log.by("ann", via="token:t")) == ""
    assert "had no job:submit on queue:prod" in log.submitted("2", "ann", "prod", **log.by("ann", via="token:t"))
    assert "had no job:cancel" in log.add("queue", ev.JobHeld(**log.by("ann", via="token:t"), job="1", by="ann"))


def test_an_answer_names_the_user_of_its_authority() -> None:
    """Else a job would belong to one and be sent by another."""
    log = Log()
    log.granted("ann", "admin", "cluster")
    assert 'it names "bob"' in log.add("queue", submitted("1", "bob", **log.by("ann")))


def test_only_an_admin_of_the_cluster_acts_for_another() -> None:
    """And it is the admin's rights that count, over a job of the other's."""
    log = Log()
    log.granted("ann", "member", "queue:research")
    assert "acts for bob" in log.submitted("1", "bob", **log.by("ann", act_as="bob"))
    log.granted("ann", "admin", "cluster")
    assert log.submitted("2", "bob", **log.by("ann", act_as="bob")) == ""
    assert log.add("queue", ev.JobCancelled(**log.by("bob"), job="2", by="bob")) == "", "its owner is bob"


def test_a_limit_is_extended_by_a_right_over_the_queue() -> None:
    """Owners change their jobs, and lower their limits; what takes from others needs more."""
    log = Log()
    log.granted("bob", "member", "queue:research")
    log.granted("ann", "queue-admin", "queue:research")
    assert log.submitted("1", "bob", **log.by("bob")) == ""
    lowered = ev.JobUpdated(**log.by("bob"), job="1", total_ns=1, by="bob")
    assert log.add("queue", lowered) == ""
    raised = ev.JobUpdated(**log.by("bob"), job="1", total_ns=9, extends=True, by="bob")
    assert "had no queue:set on" in log.add("queue", raised)
    assert log.add("queue", ev.JobUpdated(**log.by("ann"), job="1", total_ns=9, extends=True, by="ann")) == ""


def test_places_are_those_of_that_sequence() -> None:
    """A job that moves, a queue that goes, and a node that changes its pool leave the rights over what was before."""
    log = Log()
    log.granted("bob", "operator", "queue:research")
    assert log.add("queue", submitted("1", "ann", cause="cmd:x")) == ""
    at_first = log.sequence
    assert not log.add("queue", ev.JobMoved(cause="cmd:y", job="1", queue="prod"))
    held = ev.JobHeld(**log.by("bob", rights=at_first), job="1", by="bob")
    assert log.add("queue", held) == ""
    assert "had no job:cancel on queue:prod" in log.add("queue", ev.JobHeld(**log.by("bob"), job="1", by="bob"))
    log.granted("bob", "operator", "pool:a")
    for pool in ("a", "b"):
        node = msgspec.structs.replace(inventory("n1"), labels={POOL_LABEL: pool})
        assert not log.add(
            "placer", ev.NodeJoined(cause="report:n1:1", node="n1", incarnation="i", boot_id="b", inventory=node)
        )
    cordoned = ev.NodeCordoned(**log.by("bob", rights=log.sequence - 1), node="n1", by="bob")
    assert log.add("placer", cordoned) == ""
    assert "node:operate on pool:b" in log.add("placer", ev.NodeCordoned(**log.by("bob"), node="n1", by="bob"))


def test_a_plan_needs_the_right_over_each_of_its_nodes() -> None:
    """Also to pause it, when its event names no node."""
    log = Log()
    log.granted("bob", "operator", "pool:a")
    for name, pool in (("n1", "a"), ("n2", "b")):
        node = msgspec.structs.replace(inventory(name), labels={POOL_LABEL: pool})
        log.add("placer", ev.NodeJoined(cause="report:n:1", node=name, incarnation="i", boot_id="b", inventory=node))
    started = ev.RolloutStarted(cause="cmd:x", name="r", nodes=("n1", "n2"), budget_gpus=8)
    assert log.add("placer", started) == ""
    assert "on pool:b" in log.add("placer", ev.RolloutPaused(**log.by("bob"), name="r", by="bob"))


def test_queues_that_are_made_above_a_named_one_need_no_right() -> None:
    """Whoever may set research/vision/llm makes what is missing above it; with limits it would be a change of its own."""
    log = Log()
    log.granted("ann", "queue-admin", "queue:new/vision")
    by = log.by("ann")
    inner = ev.QueueConfigured(**by, path="new/vision/llm", settings=QueueSettings(), by="ann")
    outer = ev.QueueConfigured(**by, path="new", settings=QueueSettings(), by="ann")
    limited = ev.QueueConfigured(**by, path="new", settings=QueueSettings(weight=7), by="ann")
    assert "had no queue:set on queue:new" in log.add("queue", limited, inner)
    assert (
        log.add(
            "queue", ev.QueueRemoved(cause="cmd:x", path="new/vision/llm"), ev.QueueRemoved(cause="cmd:x", path="new")
        )
        == ""
    )
    assert log.add("queue", outer, inner) == ""


def test_the_access_services_answers_are_judged_on_the_state_before_their_commit() -> None:
    """It decides on that state itself, whatever the gateway had seen. No person grants more than they hold."""
    log = Log()
    early = log.sequence
    log.granted("ann", "queue-admin", "queue:research")
    given: dict[str, Any] = {"subject": "bob", "role": "member", "source": "person", "by": "ann"}
    assert log.add("access", ev.RoleGranted(**log.by("ann", rights=early), scope="queue:research/x", **given)) == ""
    assert "right to give or take member in queue:prod" in log.add(
        "access", ev.RoleGranted(**log.by("ann"), scope="queue:prod", **given)
    )
    assert "rights:grant" in log.add("access", ev.PrincipalSuspended(**log.by("ann"), principal="bob", by="ann"))


def test_own_tokens_and_sign_ins_need_no_grant() -> None:
    """Those of others are the cluster's admins'."""
    log = Log()
    token: dict[str, Any] = {"principal": "ann", "kind": "person", "expires_ns": 9}
    assert log.add("access", ev.TokenIssued(**log.by("ann"), token="t", by="ann", **token)) == ""
    assert "had no rights:grant" in log.add(
        "access", ev.TokenRevoked(**log.by("bob"), token="t", reason="revoked", by="bob")
    )
    assert log.add("access", ev.TokenIssued(**CLOCK, token="u", **token)) == ""
    assert log.add("access", ev.TokenRevoked(**log.by("ann"), token="u", reason="revoked", by="ann")) == ""
    assert "had no rights:grant" in log.add(
        "access", ev.SessionEnded(**log.by("bob"), session="iann", reason="revoked", by="bob")
    )


def test_refusals_carry_out_nothing() -> None:
    """They are counted, and may be of anybody."""
    log = Log()
    assert log.add("queue", ev.CommandRejected(**log.by("eve"), command="c1", code="x", message="m")) == ""
    assert log.add("queue", ev.CommandRepeated(**log.by("ann"), command="c2", job="1")) == ""
    assert log.audit.commands == CommandCount(refused=2)


def test_an_event_that_answers_nothing_has_no_authority() -> None:
    """A service that forgets whose command is over would prove rights that were never used."""
    log = Log()
    authority = log.by("ann")["authority"]
    assert "answers no command" in log.add("queue", ev.JobQueued(cause="clock", job="1", authority=authority))
    offered = ev.JobOffered(cause="cmd:c1", job="1", attempt=1, rank=1, authority=authority)
    assert "answers no command" in log.add("queue", offered), "a later event of the queue's own"


def test_commands_without_authority_are_counted_and_those_of_people_after_the_first_token() -> None:
    """Services send none; a person's command without one is a gateway's omission once people have tokens."""
    log = Log()
    assert log.add("queue", submitted("1", "ann", cause="cmd:x")) == ""
    assert log.add("queue", ev.JobStopRequested(cause="cmd:y", job="1", attempt=1, reason="cancelled", by="ann")) == ""
    # A later consequence: the array's elements end by the same command.
    assert (
        log.add(
            "queue",
            ev.JobCancelled(cause="cmd:y", job="1_0", by="ann"),
            ev.JobOffered(cause="cmd:x", job="1", attempt=1, rank=1),
        )
        == ""
    )
    assert log.audit.commands == CommandCount(without_authority=2)
    assert not log.add("access", ev.TokenIssued(**CLOCK, token="t", principal="ann", kind="person", expires_ns=9))
    assert not log.add("queue", submitted("2", "ann", cause="cmd:z"))
    assert not log.add("placer", ev.NodeCordoned(cause="cmd:w", node="n1"))
    assert log.audit.commands == CommandCount(without_authority=4, unsigned=1)


def test_what_was_done_to_a_job_says_by_whom_and_by_which_grant() -> None:
    """Read back from the event that did it."""
    log = Log()
    log.granted("group:ops", "operator", "queue:research")
    log.add("access", ev.GroupSynced(**CLOCK, group="group:ops", source="file", added=("bob",)))
    assert log.add("queue", submitted("1", "ann", cause="cmd:x")) == ""
    cancelled = ev.JobCancelled(**log.by("bob"), job="1", by="bob")
    assert log.add("queue", cancelled) == ""

    def words(event: ev.Event) -> str:
        assert event.authority is not None
        return done_by(event, log.audit.history, log.audit.books.at(event.authority.rights))

    assert words(cancelled) == "cancelled by bob: operator in queue:research as a member of group:ops"
    assert words(ev.JobHeld(**log.by("ann"), job="1", by="ann")) == "held by ann: its owner"
    log.granted("bob", "admin", "cluster")
    moved = ev.JobMoved(**log.by("bob", act_as="ann"), job="1", queue="prod", by="ann")
    assert words(moved) == "moved to prod by bob for ann: admin in cluster"


@pytest.mark.parametrize("service", ["Queue", "Placer", "Telemetry", "Access"])
def test_every_command_is_in_the_table_of_needs(service: str) -> None:
    """A new command without a right fails here."""
    kinds = get_args(getattr(cmd, f"{service}Command"))
    assert [kind.__name__ for kind in kinds if kind not in COMMAND_NEEDS] == []


def test_every_event_that_names_a_user_is_in_a_table() -> None:
    """An event that a command leads to says by whom: the audit knows what it needed, or that it needed nothing."""
    kinds = {kind for kinds in ev.EVENTS_OF.values() for kind in kinds}
    named = {kind for kind in kinds if {"by", "user", "command"} & set(kind.__struct_fields__)}
    tables = {*EVENT_NEEDS, *ACCOMPANYING, *REFUSALS}
    assert sorted(kind.__name__ for kind in named - tables) == []
