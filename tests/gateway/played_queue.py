"""A queue service played by a test: it answers each command by a script, and decides nothing."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from fairlead_bus.core import Decision, Input
from fairlead_bus.input_source import CommandSource
from fairlead_bus.service import Service
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit
from tests.gateway.gatehouse import Gatehouse
from tests.kit.eventually import eventually_async

#: Events that a command leads to; their causes are put in by the queue.
Answer = Callable[[Any], list[ev.Event]]


def obliging(command: Any) -> list[ev.Event]:
    """Does what it is asked to, whatever that is."""
    cause = f"cmd:{command.id}"
    match command:
        case cmd.ApplyQueues():
            changed = len(command.queues) + len(command.pools)
            return [
                *(ev.PoolConfigured(cause=cause, pool=one.pool, settings=one.settings) for one in command.pools),
                *(ev.QueueConfigured(cause=cause, path=one.path, settings=one.settings) for one in command.queues),
                *(ev.QueueRemoved(cause=cause, path=one.path, move_to=one.move_to) for one in command.remove),
                ev.QueuesApplied(cause=cause, command=command.id, configured=changed, removed=len(command.remove)),
            ]
        case cmd.SubmitJob():
            return [
                ev.JobSubmitted(
                    cause=cause,
                    job="1",
                    name=command.name,
                    queue=command.queue,
                    user=command.user,
                    request=command.request,
                    spec=command.spec,
                )
            ]
        case cmd.MoveJob():
            return [ev.JobMoved(cause=cause, job=command.job, queue=command.queue, by=command.user)]
        case cmd.HoldQueue():
            return [ev.QueueHeld(cause=cause, path=command.path, reason=command.reason, by=command.user)]
        case cmd.DrainQueue():
            return [ev.QueueDrained(cause=cause, path=command.path, reason=command.reason, by=command.user)]
        case cmd.SetPrice(model=model, micro=micro, currency=currency):
            from_ns = command.from_ns or 1
            return [
                ev.PriceSet(cause=cause, model=model, micro=micro, currency=currency, from_ns=from_ns, by=command.user)
            ]
        case cmd.ReleaseQueue():
            return [ev.QueueReleased(cause=cause, path=command.path, by=command.user)]
        case _:
            raise AssertionError(f"nobody asked for {command}")


def refusing(code: str, message: str) -> Answer:
    """Refuses everything."""
    return lambda command: [
        ev.CommandRejected(cause=f"cmd:{command.id}", command=command.id, code=code, message=message)
    ]


class PlayedQueue:
    """`fairlead_bus.core.Core`; remembers what it was asked."""

    schema = "played"

    def __init__(self, house: "QueueHouse") -> None:
        self._house = house

    def evolve(self, seq: int, commit: Commit) -> None: ...

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        asked = [command for item in inputs for command in item.body]
        self._house.asked += asked
        events = [event for command in asked for event in self._house.answer(command)]
        return Decision(events, {item.source: item.position for item in inputs})

    def split(self, item: Input) -> list[Input]:
        return []

    def reject(self, item: Input, error: str, now_ns: int) -> Decision:
        raise AssertionError(error)

    def wake_at(self) -> int | None:
        return None

    def snapshot(self) -> bytes:
        return b""

    @classmethod
    def restore(cls, data: bytes) -> Self:
        raise AssertionError("nothing was saved")


class QueueHouse(Gatehouse):
    """The gateway next to a played queue."""

    def __init__(self, answer: Answer = obliging, *, decision_wait_s: float = 30.0) -> None:
        super().__init__(decision_wait_s=decision_wait_s)
        self.answer = answer
        self.asked: list[Any] = []

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        core: Any = partial(PlayedQueue, self)
        core.schema = PlayedQueue.schema  # a partial has none of its class's attributes
        queue = Service(self.hub.connect(), core, writer="queue", sources=[CommandSource("queue")])
        self.spawn(queue)
        await eventually_async(lambda: queue.leading)
        return self
