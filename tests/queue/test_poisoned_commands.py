"""A command whose decision raises, on the service shell: recorded as rejected, and nothing else of it."""

import asyncio
import hashlib

import msgspec
import pytest

from fairlead_bus.memory import MemoryHub
from fairlead_gateway.views.fold import Views
from fairlead_queue.core import QueueCore
from fairlead_queue.decide import offers
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.decide.turns import Turns
from fairlead_queue.service import build
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import SubmitJob, encode_commands
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.events import CommandRejected, JobOffered, JobSubmitted
from fairlead_schemas.wire.resources import Request
from tests.kit.queue_world import SPEC
from tests.queue.stored_log import commits


class Bug(Exception):
    """The exception of a decision."""


def submission(id_: str) -> SubmitJob:
    return SubmitJob(id=id_, user=id_, name="job", queue="default", request=Request(gpu_milli=1000), spec=SPEC)


@pytest.mark.parametrize("bug", [Bug, AssertionError, RecursionError])
async def test_a_poisoned_command_commits_one_rejection(bug: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault occurs after the decision has queued its new jobs and charged their queues. The other commands in the
    message are accepted, no offer is made for a job that was not submitted, the gateway folds the log, and the live
    state equals the fold of the log."""
    say_why = offers.emit_pending_reasons

    def faulty(plan: QueueDraft, turns: Turns) -> None:
        if any(fresh.user == "poison" for fresh in plan.fresh):
            raise bug("planted")
        say_why(plan, turns)

    monkeypatch.setattr(offers, "emit_pending_reasons", faulty)
    bus = MemoryHub().connect()
    await bus.ensure()
    service = await build(bus)
    running = asyncio.create_task(service.run())
    message = encode_commands([submission("ada"), submission("poison"), submission("bob")])
    await bus.append(subjects.CMD, subjects.cmd("queue"), message)
    await bus.append(subjects.CMD, subjects.cmd("queue"), encode_commands([submission("eve")]))
    log = await commits(bus, lambda log: any(event.cause == "cmd:eve" for commit in log for event in commit.events))

    events = [event for commit in log for event in commit.events]
    assert [event.command for event in events if isinstance(event, CommandRejected)] == ["poison"]
    submitted = [event.job for event in events if isinstance(event, JobSubmitted)]
    offered = [event.job for event in events if isinstance(event, JobOffered)]
    assert len(submitted) == 3
    assert sorted(offered) == sorted(submitted), "each accepted job is offered once, and no other"
    _gateway_folds(log)
    answer = msgspec.json.decode(await bus.request(subjects.rpc("queue", "state"), b"", timeout_s=60))
    assert answer["sha256"] == hashlib.sha256(_folded(log).snapshot()).hexdigest()
    await service.stop()
    assert await running == 0


def _gateway_folds(log: list[Commit]) -> None:
    views = Views()
    for sequence, commit in enumerate(log, start=1):
        views.fold(sequence, commit)


def _folded(log: list[Commit]) -> QueueCore:
    core = QueueCore()
    for sequence, commit in enumerate(log, start=1):
        core.evolve(sequence, commit)
    return core
