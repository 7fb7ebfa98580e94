"""The right by which a command was sent is repeated in every event that answers it, by each deciding service."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from fairlead_access.core import AccessCore
from fairlead_bus.core import CommitDraft, Core, Input, authority_bytes
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.queuefile.settings import QueueEntry, QueueSettings
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.authority import Authority
from fairlead_schemas.wire.commit import COMMIT_BYTES_MAX, encode_commit
from fairlead_schemas.wire.resources import Request
from fairlead_telemetry.idle.core import IdleCore
from tests.kit.commits import commit_of
from tests.kit.placer_world import inventory

NOW_NS = 1_000 * SECOND_NS
OURS = Authority(principal="p" * 13, via="session:" + "i" * 13, rights=10**12)
MINE: dict[str, Any] = {"user": OURS.principal, "authority": OURS}
SPEC = msgspec.Raw(b"{}")


def submit(number: int, **fields: Any) -> cmd.SubmitJob:
    """A small job."""
    return cmd.SubmitJob(id=f"s{number}", name="n", queue="default", request=Request(), spec=SPEC, **fields)


def placer() -> PlacerCore:
    """A placer with a node."""
    core = PlacerCore()
    joined = ev.NodeJoined(cause="report:n1:1", node="n1", incarnation="i", boot_id="b", inventory=inventory("n1"))
    core.evolve(1, commit_of([joined], writer="placer", n=1, at_ns=NOW_NS))
    return core


def queue() -> QueueCore:
    """A queue service with its default queue."""
    core = QueueCore()
    core.evolve(1, commit_of(core.decide([], NOW_NS).events, writer="queue", n=1, at_ns=NOW_NS))
    return core


def decided(core: Core, commands: Sequence[Any]) -> list[Any]:
    """Events of one decision on one message."""
    return list(core.decide([Input("CMD", 1, list(commands))], NOW_NS + SECOND_NS).events)


GRANT = cmd.RoleEntry(subject="p1", role="admin", scope="cluster")
POLICY = IdlePolicy(rule="lifetime", action="stop", after_ns=HOUR_NS, notice_ns=HOUR_NS)
#: Later events that name a command as their cause: rules decide them, no command.
LATER = (ev.JobOffered, ev.NodeDrained)
CASES: list[tuple[Any, list[Any], set[str]]] = [
    (
        queue,
        [
            submit(1, key="k", digest="d", **MINE),
            submit(2, key="k", digest="d", **MINE),
            submit(3, key="k", digest="other", **MINE),
            cmd.CancelJob(id="c1", job="1", **MINE),
            cmd.ApplyQueues(id="c2", queues=(QueueEntry(path="a/b", settings=QueueSettings()),), **MINE),
            cmd.CancelJob(id="c3", job="77", **MINE),
        ],
        {"JobSubmitted", "CommandRepeated", "JobRejected", "CommandRejected", "QueueConfigured", "QueuesApplied"},
    ),
    (
        placer,
        [cmd.DrainNode(id="c1", node="n1", **MINE), cmd.CordonNode(id="c2", node="n2", **MINE)],
        {"NodeDraining", "NodeCommandRejected"},
    ),
    (
        IdleCore,
        [
            cmd.ApplyIdlePolicies(id="c1", scopes={"global": (POLICY,), "project:x": (POLICY,)}, **MINE),
            cmd.ExtendJob(id="c2", job="1", **MINE),
        ],
        {"IdlePoliciesSet", "TelemetryCommandRejected"},
    ),
    (
        AccessCore,
        [
            cmd.AdmitPrincipal(id="c1", principal="p1", authority=OURS),
            cmd.GrantRole(id="c2", grant=GRANT, authority=OURS),
            cmd.RevokeToken(id="c3", token="t1", **MINE),
        ],
        {"PrincipalAdmitted", "RoleGranted", "AccessCommandRejected"},
    ),
]


@pytest.mark.parametrize(("make", "commands", "kinds"), CASES)
def test_every_answer_repeats_its_commands_authority(make: Any, commands: list[Any], kinds: set[str]) -> None:
    """Accepted, refused and repeated ones. What the service decides by itself in the same commit carries none."""
    events = decided(make(), [*commands, cmd.Undecodable(digest="d" * 64, message="m")])
    asked = {f"cmd:{command.id}" for command in commands}
    answers = [event for event in events if event.cause in asked and not isinstance(event, LATER)]
    assert {type(event).__name__ for event in answers} >= kinds
    assert [event.authority for event in answers] == [OURS] * len(answers)
    assert asked == {event.cause for event in answers}
    assert all(event.authority is None for event in events if event not in answers)


@pytest.mark.parametrize(("make", "commands", "kinds"), CASES)
def test_commands_without_one_are_answered_as_before(make: Any, commands: list[Any], kinds: set[str]) -> None:
    """The events are equal except for the authority."""
    plain = [msgspec.structs.replace(command, authority=None) for command in commands]
    with_it, without = decided(make(), commands), decided(make(), plain)
    assert [msgspec.structs.replace(event, authority=None) for event in with_it] == without
    assert all(event.authority is None for event in without)


FOUR_HUNDRED: list[tuple[Any, Any]] = [
    (queue, lambda n: cmd.CancelJob(id=f"{n}", job="1", **MINE)),
    (queue, lambda n: submit(n, **MINE)),
    (placer, lambda n: cmd.CordonNode(id=f"{n}", node="n1", **MINE)),
    (placer, lambda n: cmd.CordonNode(id=f"{n}", node="no", **MINE)),
    (IdleCore, lambda n: cmd.ExtendJob(id=f"{n}", job="1", **MINE)),
    (AccessCore, lambda n: cmd.AdmitPrincipal(id=f"{n}", principal=f"p{n}", authority=OURS)),
    (AccessCore, lambda n: cmd.RevokeToken(id=f"{n}", token="t", **MINE)),
]


@pytest.mark.parametrize(("make", "command"), FOUR_HUNDRED)
def test_as_many_as_a_message_takes_are_answered_in_one_commit(make: Any, command: Any) -> None:
    """In the bytes that are really written."""
    commands = [command(n) for n in range(cmd.MESSAGE_COMMANDS_MAX)]
    while len(cmd.encode_commands(commands)) > cmd.MESSAGE_BYTES_MAX:
        commands.pop()
    assert len(commands) > cmd.MESSAGE_COMMANDS_MAX // 2
    events = decided(make(), commands)
    assert {f"cmd:{command.id}" for command in commands} <= {event.cause for event in events}
    assert len(encode_commit(commit_of(events, n=1, at_ns=NOW_NS))) <= COMMIT_BYTES_MAX


def test_a_draft_counts_the_bytes_of_what_it_repeats() -> None:
    """A rule that looks for room before it emits finds as many events as really fit."""
    event = ev.JobHeld(cause="cmd:c", job="1")
    for authority in (OURS, Authority(principal="\x01" * 64, via="ü" * 72, rights=0, act_as="a")):
        draft = CommitDraft[None, ev.JobHeld](None, 0)
        draft.repeat(authority)
        with_it = msgspec.json.encode(draft.authorized(event))
        assert len(with_it) - len(msgspec.json.encode(event)) == authority_bytes(authority)
        room = COMMIT_BYTES_MAX // (draft.EVENT_BYTES + authority_bytes(authority))
        assert draft.fits(events=room) and not draft.fits(events=room + 1)
        draft.emit(event)
        assert draft.size == draft.EVENT_BYTES + authority_bytes(authority)
        draft.repeat(None)
        draft.emit(event)
        assert [each.authority for each in draft.events] == [authority, None]
