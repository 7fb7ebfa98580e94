"""Hollow node: its orders, its simulated runs and its reports; and samples of a hollow node: played numbers of its GPUs,
on or off as its runs hold them. No bus, no clock.

The code is kept small: a simulated run costs tens of microseconds in all. A run is played once: like a real agent's
journal, `runs` keeps it until a later desired state no longer names it.
"""

import math

import msgspec

from fairlead_agent.core.outbox import Outbox
from fairlead_agent.devices.repartition import SimulatedCutter, carry_out
from fairlead_agent.devices.simulated_meters import PlayedMeters, instance_samples, shown
from fairlead_agent.hollow.outcomes import PlayedCommands
from fairlead_agent.hollow.shapes import Shape, counted, inventory
from fairlead_schemas.wire.desired import LayoutOrder
from fairlead_schemas.wire.events import RunOutcome
from fairlead_schemas.wire.reports import ExitSeen, InventorySeen, ReportAck, StartSeen
from fairlead_schemas.wire.samples import GpuSample, SampleBatch, encode_samples

BOOT_ID = "hollow"


class PlayedOrder(msgspec.Struct, frozen=True, gc=False):
    """The fields of a `RunOrder` that a hollow node looks at; the rest is skipped undecoded."""

    job: str
    attempt: int
    rank: int
    spec: msgspec.Raw = msgspec.Raw(b"null")
    spec_hash: str = ""
    gpus: list[str] = []
    stop: str = ""


class PlayedDesired(msgspec.Struct, frozen=True, gc=False):
    """`Desired`, likewise."""

    node: str
    incarnation: str
    sequence: int
    runs: list[PlayedOrder] = []
    layouts: list[LayoutOrder] = []


Key = tuple[str, int, int]

_decoder = msgspec.json.Decoder(PlayedDesired)
decode_played = _decoder.decode


class HollowNode:
    """Runs and reports of one hollow node. `due` collects (seconds from now, key) of runs that will end without a stop order."""

    __slots__ = ("cut", "desired", "held", "incarnation", "inventory", "name", "outbox", "reported", "runs", "shape")

    def __init__(self, shape: Shape, incarnation: str) -> None:
        self.name = shape.node
        self.shape = shape
        self.incarnation = incarnation
        self.outbox = Outbox(shape.node, incarnation)
        self.reported = 0
        #: Sequence of the desired state that was taken up.
        self.desired = 0
        #: {run: its exit code while it is played, None once it has ended}.
        self.runs: dict[Key, int | None] = {}
        #: {UUID: "<job>.<attempt>"} of what runs that have not ended hold.
        self.held: dict[str, str] = {}
        self.inventory = inventory(shape)
        #: The newest plan by which a GPU was repartitioned.
        self.cut = 0
        self.outbox.add(InventorySeen(n=self._next(), boot_id=BOOT_ID, inventory=self.inventory))

    def missing(self, desired: PlayedDesired, commands: PlayedCommands) -> set[str]:
        """Return hashes of job files that runs to be started need and that have not been read from the SPEC store yet."""
        if not self._is_news(desired):
            return set()
        return {
            order.spec_hash
            for order in desired.runs
            if order.spec_hash
            and (order.job, order.attempt, order.rank) not in self.runs
            and commands.named(order.spec_hash) is None
        }

    def _is_news(self, desired: PlayedDesired) -> bool:
        return desired.incarnation == self.incarnation and desired.sequence > self.desired

    def take(
        self, desired: PlayedDesired, commands: PlayedCommands, speed: float, at_ns: int
    ) -> list[tuple[float, Key]]:
        """Apply a desired state; return (seconds until it ends, run) for each run that was started and is still running."""
        if not self._is_news(desired):
            return []
        self.desired = desired.sequence
        for layout in desired.layouts:
            if layout.plan > self.cut:
                self._cut(layout)
        runs = self.runs
        going: list[tuple[float, Key]] = []
        wanted: set[Key] = set()
        for order in desired.runs:
            key = (order.job, order.attempt, order.rank)
            wanted.add(key)
            if key not in runs:
                self._start(key, order, commands, speed, at_ns, going)
            elif order.stop and runs[key] is not None:
                self._end(key, "stopped", None, 15, at_ns)
        if len(wanted) != len(runs):
            for key in [key for key in runs if key not in wanted]:
                if runs[key] is not None:
                    self._end(key, "stopped", None, 15, at_ns)
                del runs[key]
        return going

    def _cut(self, order: LayoutOrder) -> None:
        """Cut a played GPU, and take stock."""
        self.cut, failure = order.plan, f"this node has no GPU {order.gpu}"
        gpus = list(self.inventory.gpus)
        for at, gpu in enumerate(gpus):
            if gpu.uuid == order.gpu:
                cutter = SimulatedCutter(gpu, order.plan)
                failure = carry_out(cutter, order)
                gpus[at] = cutter.gpu
        self.inventory = counted(self.inventory, tuple(gpus))
        self.outbox.add(
            InventorySeen(n=self._next(), boot_id=BOOT_ID, inventory=self.inventory, plan=order.plan, failure=failure)
        )

    def _start(
        self,
        key: Key,
        order: PlayedOrder,
        commands: PlayedCommands,
        speed: float,
        at_ns: int,
        going: list[tuple[float, Key]],
    ) -> None:
        job, attempt, rank = key
        if order.stop:
            self.runs[key] = 0
            self._end(key, "stopped", None, None, at_ns)
            return
        found = commands.named(order.spec_hash) if order.spec_hash else commands.of(bytes(order.spec))
        if found is None:
            message = f"its job file {order.spec_hash} is not in the SPEC store"
            self._end(key, "start_failed", None, None, at_ns, message)
            return
        seconds, code = found
        self.runs[key] = code
        for uuid in order.gpus:
            self.held[uuid] = f"{job}.{attempt}"
        self.outbox.add(StartSeen(n=self._next(), job=job, attempt=attempt, rank=rank, at_ns=at_ns))
        if seconds > 0:
            going.append((seconds / speed, key))
        else:
            self.over(key, at_ns)

    def over(self, key: Key, at_ns: int) -> bool:
        """A run has come to its own end; False when it had ended before."""
        code = self.runs.get(key)
        if code is None:
            return False
        self._end(key, "exited", code, None, at_ns)
        return True

    def confirm(self, confirm: ReportAck, now: int) -> None:
        """The placer's word."""
        self.outbox.confirm(confirm, now)

    def _end(
        self, key: Key, outcome: RunOutcome, code: int | None, signal: int | None, at_ns: int, message: str = ""
    ) -> None:
        job, attempt, rank = key
        self.runs[key] = None
        if (run := f"{job}.{attempt}") in self.held.values():
            self.held = {uuid: holder for uuid, holder in self.held.items() if holder != run}
        self.outbox.add(
            ExitSeen(
                n=self._next(),
                job=job,
                attempt=attempt,
                rank=rank,
                outcome=outcome,
                exit_code=code,
                signal=signal,
                message=message,
                clean=True,
                at_ns=at_ns,
            )
        )

    def _next(self) -> int:
        self.reported += 1
        return self.reported


class HollowSamples:
    """Numbers the batches of one node."""

    __slots__ = ("_meters", "_n", "_node")

    def __init__(self, node: HollowNode) -> None:
        self._node = node
        self._meters = PlayedMeters()
        self._n = 0

    def next(self, at_ns: int) -> bytes:
        """The bytes of the next batch, as measured at that moment (Unix)."""
        self._n += 1
        second, held, gpus = at_ns / 1e9, self._node.held, list[GpuSample]()
        for gpu in self._node.inventory.gpus:
            run, wave = held.get(gpu.uuid, ""), math.sin(second / 20 + gpu.index)
            fields = shown(gpu, run, wave)
            gpus.append(
                GpuSample(
                    uuid=gpu.uuid, parent="", run=run, **fields, **self._meters.of(gpu, fields, second, linked=True)
                )
            )
            gpus += instance_samples(gpu, held, {}, fields["utilization_pct"])
        return encode_samples(
            SampleBatch(
                node=self._node.name,
                incarnation=self._node.incarnation,
                n=self._n,
                at_ns=at_ns,
                gpus=gpus,
                simulated=True,
            )
        )
