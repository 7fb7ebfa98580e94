"""A small world around a placer core: a log in memory, and builders whose tables read as a story."""

from typing import Any

import msgspec

from fairlead_bus.core import Decision, Input
from fairlead_placer.core import PlacerCore
from fairlead_placer.desired_state import OrderBook
from fairlead_placer.invariants import check
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit, decode_commit, encode_commit
from fairlead_schemas.wire.desired import RunOrder, decode_desired
from fairlead_schemas.wire.reports import CleanSeen, ExitSeen, InventorySeen, Report, ReportBatch, StartSeen
from fairlead_schemas.wire.resources import Gpu, Inventory, Request
from tests.kit.commits import commit_of

SECOND = 1_000_000_000


def inventory(
    node: str,
    gpus: int = 8,
    *,
    cpu: int = 64,
    memory_gib: int = 512,
    gpu_memory_mib: int = 40960,
    capability: int = 80,
    labels: dict[str, str] | None = None,
) -> Inventory:
    """A machine: `gpus` equal GPUs named "<node>-g<i>", `cpu` cores, memory."""
    devices = tuple(
        Gpu(uuid=f"{node}-g{i}", index=i, model="A100", memory_mib=gpu_memory_mib, compute_capability=capability)
        for i in range(gpus)
    )
    return Inventory(
        gpus=devices,
        cpu_milli=cpu * 1000,
        memory_mib=memory_gib * 1024,
        labels=labels or {},
        runtime="hollow",
        simulated=True,
        address=f"10.0.0.{sum(map(ord, node)) % 250}",
        hostname=node,
    )


def request(gpus: int = 1, *, nodes: int = 1, cpu: int = 1, memory_gib: int = 1, **more: Any) -> Request:
    """Build the request of each node of a job."""
    return Request(nodes=nodes, gpu_milli=gpus * 1000, cpu_milli=cpu * 1000, memory_mib=memory_gib * 1024, **more)


def commit_bytes(events: list[ev.Event], cursors: dict[str, int] | None = None) -> int:
    """Bytes of a commit of these events."""
    commit = commit_of(events, writer="placer", basis=1, cursors=cursors or {"CMD": 1})
    return len(encode_commit(commit))


class PlacerWorld:
    """The core, its log, and the agents' numbers. Every commit is folded from its bytes and checked.

    `keeper`: a second core, at whose state nobody looks between a decision and its commit, so that what it tries stays.
    """

    def __init__(self, keeper: PlacerCore | None = None) -> None:
        self.core, self.keeper = PlacerCore(), keeper
        self._kept: tuple[Decision, Decision] | None = None
        self.log: list[Commit] = []
        self.now = 1_000 * SECOND
        self.numbers: dict[str, int] = {}
        self.incarnations: dict[str, str] = {}
        self.position = 0
        self.jobs = 0
        self.rank = 0

    # -- the log

    def fold(self, writer: str, events: list[ev.Event], cursors: dict[str, int] | None = None) -> None:
        commit = commit_of(events, writer=writer, n=len(self.log) + 1, at_ns=self.now, cursors=cursors)
        self.log.append(decode_commit(encode_commit(commit)))
        self.core.evolve(len(self.log), self.log[-1])
        check(self.core.state)
        if self.keeper is not None:
            self._keep(self.keeper, events)

    def _keep(self, keeper: PlacerCore, events: list[ev.Event]) -> None:
        """The other core folds the same, and is what it would be if it had folded the bytes."""
        commit = self.log[-1]
        if self._kept is not None and self._kept[0].events is events:
            commit = msgspec.structs.replace(commit, events=self._kept[1].events)
        self._kept = None
        keeper.evolve(len(self.log), commit)
        check(keeper.state)
        assert keeper.snapshot() == self.core.snapshot()
        assert taken_marks(keeper) == taken_marks(self.core)

    def decide(self, *inputs: Input) -> Decision:
        """Ask, and prove that asking changed nothing."""
        before = self.core.snapshot()
        decision = self.core.decide(inputs, self.now)
        assert self.core.snapshot() == before
        check(self.core.state)
        if self.keeper is not None:
            same = self.keeper.decide(inputs, self.now)
            # What a core remembers of work done is not state: after a restart the two may put things in another order.
            self._kept = (decision, same) if same == decision else None
        return decision

    def step(self, *inputs: Input) -> list[ev.Event]:
        """Decide until nothing is left to decide, folding each commit; the events of all."""
        events: list[ev.Event] = []
        for _ in range(50):
            decision = self.decide(*inputs)
            if not decision.events and not decision.cursors:
                return events
            self.fold("placer", decision.events, decision.cursors)
            events += decision.events
            inputs = ()
        raise AssertionError(f"the core does not come to rest: {events[-5:]}")

    def queue(self, *events: ev.Event) -> list[ev.Event]:
        """The queue commits; what the placer commits upon it."""
        self.fold("queue", list(events))
        return self.step()

    # -- people and the queue

    def submitted(
        self, wanted: Request, *, job: str = "", spec: bytes = b"{}", limit_s: int = 0, user: str = "ann"
    ) -> tuple[ev.JobSubmitted, ev.JobOffered]:
        self.jobs += 1
        self.rank += 1
        job = job or str(self.jobs)
        return (
            ev.JobSubmitted(
                cause=f"cmd:{job}",
                job=job,
                name="t",
                queue="default",
                user=user,
                request=wanted,
                spec=msgspec.Raw(spec),
                grace_ns=5 * SECOND,
                total_ns=limit_s * SECOND,
            ),
            ev.JobOffered(cause="clock", job=job, attempt=1, rank=self.rank),
        )

    def offer(self, wanted: Request, **more: Any) -> list[ev.Event]:
        return self.queue(*self.submitted(wanted, **more))

    def command(self, *commands: object) -> list[ev.Event]:
        self.position += 1
        return self.step(Input("CMD", self.position, list(commands)))

    # -- agents

    def join(
        self, node: str, gpus: int = 8, *, incarnation: str = "", boot: str = "boot-1", **more: Any
    ) -> list[ev.Event]:
        """An agent with a new journal takes stock."""
        self.incarnations[node] = incarnation or f"{node}-inc{len(self.log)}"
        self.numbers[node] = 0
        return self.report(node, InventorySeen(n=0, boot_id=boot, inventory=inventory(node, gpus, **more)))

    def joined(self, found: dict[str, Inventory]) -> None:
        """These nodes at once, without the detour over reports: for tests of large clusters."""
        self.incarnations |= {node: f"{node}-inc" for node in found}
        self.numbers |= dict.fromkeys(found, 0)
        self.fold(
            "placer",
            [
                ev.NodeJoined(
                    cause="clock", node=node, incarnation=f"{node}-inc", boot_id="boot-1", inventory=inventory
                )
                for node, inventory in found.items()
            ],
        )

    def first_batch(self, node: str, gpus: int, *, boot: str = "boot-1", **more: Any) -> ReportBatch:
        """The newest journal's first report, once more."""
        report = InventorySeen(n=1, boot_id=boot, inventory=inventory(node, gpus, **more))
        return ReportBatch(node=node, incarnation=self.incarnations[node], reports=[report])

    def batch(self, node: str, *reports: Report) -> Input:
        numbered: list[Report] = []
        for report in reports:
            self.numbers[node] += 1
            numbered.append(msgspec.structs.replace(report, n=self.numbers[node]))
        body = ReportBatch(node=node, incarnation=self.incarnations[node], reports=numbered)
        return Input("report", self.numbers[node], body)

    def report(self, node: str, *reports: Report) -> list[ev.Event]:
        return self.step(self.batch(node, *reports))

    def start(self, node: str, job: str, rank: int = 0, attempt: int = 1) -> list[ev.Event]:
        return self.report(node, StartSeen(n=0, job=job, attempt=attempt, rank=rank))

    def exit(
        self,
        node: str,
        job: str,
        rank: int = 0,
        attempt: int = 1,
        *,
        outcome: ev.RunOutcome = "exited",
        exit_code: int | None = 0,
        clean: bool = True,
    ) -> list[ev.Event]:
        return self.report(
            node, ExitSeen(n=0, job=job, attempt=attempt, rank=rank, outcome=outcome, exit_code=exit_code, clean=clean)
        )

    def clean(self, node: str, job: str, rank: int = 0, attempt: int = 1) -> list[ev.Event]:
        return self.report(node, CleanSeen(n=0, job=job, attempt=attempt, rank=rank))

    def orders(self, node: str) -> dict[str, RunOrder]:
        """{run: order} that the node should have."""
        state = self.core.state
        desired = decode_desired(OrderBook().desired(state, state.nodes[node]))
        return {f"{order.job}.{order.attempt}": order for order in desired.runs}

    def stops(self, node: str) -> dict[str, str]:
        """{run: stop} of the orders that the node should have."""
        return {run: order.stop for run, order in self.orders(node).items()}

    def silent(self, node: str) -> list[ev.Event]:
        return self.step(Input("silent", 0, (node, 120 * SECOND)))

    def heard(self, node: str) -> list[ev.Event]:
        return self.step(Input("heard", 0, node))


def taken_marks(core: PlacerCore) -> tuple[set[str], set[str]]:
    """Nodes that somebody has to act upon, who does."""
    state = core.state
    marks = state.touched, state.advanced
    state.touched, state.advanced = set(), set()
    return marks


def cluster(count: int, gpus: int = 8, **more: Any) -> PlacerWorld:
    """`count` nodes n1, n2 …"""
    world = PlacerWorld()
    for i in range(1, count + 1):
        world.join(f"n{i}", gpus, **more)
    return world


def names(events: list[ev.Event]) -> list[str]:
    """The types, in order."""
    return [type(event).__name__ for event in events]


def placed(events: list[ev.Event]) -> dict[str, list[str]]:
    """{job: its nodes} of all placements."""
    return {e.job: [part.node for part in e.parts] for e in events if isinstance(e, ev.JobPlaced)}
