"""Played nodes: runs that the placer's state orders start, last and stop here, and what agents would report of them is
kept until the placer has taken it up. Pure.

Starts follow JobPlaced. Stops follow the derived orders (`is_stopping`, of which desired state is made), since a drain, a
taint, a fault, a window or a rollout stops runs without an event that names the run. How long things take is not known
here: `Behaviour` says it (`lengths.py` from a log, `virtual` from a trace).

Each node numbers its reports as an agent does, and repeats those that were not consumed. A silent node keeps its reports.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

import msgspec

from fairlead_bus.core import Input
from fairlead_placer.apply.handlers import REPORT_CURSOR
from fairlead_placer.cluster.entities import PlacedRun, run_key
from fairlead_placer.cluster.state import ClusterState
from fairlead_replay.inventories import booted, cut
from fairlead_schemas.wire.desired import LayoutOrder
from fairlead_schemas.wire.events import (
    Event,
    JobPlaced,
    JobStopRequested,
    MigLayoutPlanned,
    NodeRemoved,
    PreemptionStarted,
    RunOutcome,
    StartFault,
)
from fairlead_schemas.wire.reports import (
    CheckpointSeen,
    CleanSeen,
    ExitSeen,
    HealthSeen,
    InventorySeen,
    Report,
    ReportBatch,
    StartSeen,
)
from fairlead_schemas.wire.resources import Gpu, Inventory

#: Reports that one decision is asked to take up.
REPORTS_MAX = 400


class RunEnd(NamedTuple):
    """How a run ends, as the rank says it that decides the outcome."""

    outcome: RunOutcome = "exited"
    exit_code: int | None = 0
    signal: int | None = None
    message: str = ""
    fault: StartFault = ""
    rank: int = 0
    blames: int | None = None

    @property
    def is_success(self) -> bool:
        """True for an exit with 0."""
        return self.outcome == "exited" and self.exit_code == 0


SUCCESS, STOPPED = RunEnd(), RunEnd("stopped", None)


class RunScript(NamedTuple):
    """What a run will do unless it is stopped. Times are in nanoseconds."""

    #: From its start to its own end; None: it has none.
    length_ns: int | None
    #: From its placement to its start, of each rank; (): all at once.
    delays_ns: tuple[int, ...] = ()
    #: It does not start: this is reported once its delay is over.
    failure: RunEnd | None = None
    #: Of a gang that fails: from the end of the rank that decides it to that of the others.
    rest_ns: int = 0
    image: str = ""
    #: Saved work: (time since its start, note).
    saves: tuple[tuple[int, str], ...] = ()
    #: Calls at a time since its start: what people do because of how far it is.
    calls: tuple[tuple[int, Callable[[], None]], ...] = ()


class Execution:
    """Run of one attempt, on all its nodes."""

    __slots__ = (
        "attempt",
        "ended",
        "job",
        "key",
        "nodes",
        "over",
        "placed_ns",
        "script",
        "started_ns",
        "stopped",
        "units",
    )

    def __init__(self, job: str, attempt: int, nodes: tuple[str, ...], units: int, placed_ns: int) -> None:
        self.job, self.attempt, self.nodes, self.units = job, attempt, nodes, units
        self.key = run_key(job, attempt)
        self.placed_ns = placed_ns
        self.script = RunScript(None)
        #: When its last rank started; 0: it has not.
        self.started_ns = 0
        #: Ranks that have reported their end.
        self.ended = 0
        #: It was asked to end; it has ended.
        self.stopped = self.over = False

    @property
    def all_ranks(self) -> int:
        """Every rank's bit."""
        return (1 << len(self.nodes)) - 1


class Behaviour(Protocol):
    """How long runs take and how they end."""

    #: Whether agents say by their own clocks how long a run ran.
    has_clocks: bool

    def begin(self, execution: Execution, now_ns: int) -> RunScript:
        """Return the script of a run that was placed, or is adopted with its `started_ns`."""
        ...

    def stop_delay_ns(self, execution: Execution) -> int:
        """Return the time from the order to stop to the end."""
        ...

    def clean_delay_ns(self, execution: Execution, rank: int) -> int:
        """Return the time from a rank's end to its devices being free."""
        ...

    def finish(self, execution: Execution, now_ns: int) -> RunEnd:
        """Book what the run has done, and return how it ends: by itself, or STOPPED."""
        ...

    def lose(self, execution: Execution, now_ns: int) -> None:
        """Book what a run has done that is lost with a node."""
        ...

    def cutting_ns(self, node: str) -> int:
        """Return the time that it takes to repartition a GPU of the node."""
        ...


class _Node:
    """A played node."""

    __slots__ = ("boot_id", "incarnation", "inventory", "reported", "silent")

    def __init__(self, incarnation: str, boot_id: str, inventory: Inventory, reported: int = 0) -> None:
        self.incarnation, self.boot_id, self.inventory = incarnation, boot_id, inventory
        self.reported = reported
        self.silent = False


type _Act = Callable[[int], None]


class PlayedNodes:
    """All nodes, their runs, and what they have to report."""

    def __init__(self, behaviour: Behaviour, state: Callable[[], ClusterState]) -> None:
        self._behaviour, self._state = behaviour, state
        self.nodes: dict[str, _Node] = {}
        self.running: dict[str, Execution] = {}
        #: (when, serial, run or None, what is done). Of a run that is over nothing is done.
        self._due: list[tuple[int, int, Execution | None, _Act]] = []
        self._serial = 0
        #: {node: reports not taken up yet}
        self._waiting: dict[str, list[Report]] = {}

    # ------------------------------------------------------------------ nodes

    def join(self, name: str, inventory: Inventory, incarnation: str, boot_id: str, now_ns: int = 0) -> None:
        """A node comes, under this journal. What ran there under another one is gone."""
        self._forget_runs(name, now_ns)
        self._waiting.pop(name, None)
        self.nodes[name] = _Node(incarnation, boot_id, inventory)
        self._report(name, InventorySeen(n=0, boot_id=boot_id, inventory=inventory))

    def change(self, name: str, inventory: Inventory, boot_id: str, now_ns: int) -> None:
        """A node reports another inventory or boot; its MIG instances are those that were made here."""
        node = self.nodes.get(name)
        if node is None:
            return
        inventory = _with_instances(inventory, node.inventory)
        if node.boot_id != boot_id:
            self._forget_runs(name, now_ns)
            inventory = booted(inventory)
        node.inventory, node.boot_id = inventory, boot_id
        self._report(name, InventorySeen(n=0, boot_id=boot_id, inventory=inventory))

    def ail(self, name: str, gpu: str, code: str, evidence: str, *, over: bool) -> None:
        """A node's agent finds a fault of a GPU or of the node itself, or that it is over."""
        if name in self.nodes:
            self._report(name, HealthSeen(n=0, gpu=gpu, code=code, evidence=evidence, over=over))

    def fall_silent(self, name: str, now_ns: int) -> None:
        """A node's lease is over: what ran there is fenced, and nothing of it is reported until the node returns."""
        node = self.nodes.get(name)
        if node is not None:
            node.silent = True
            self._forget_runs(name, now_ns, fenced=True)

    def mute(self, name: str) -> None:
        """Nothing is heard of a node for now; its runs continue."""
        if name in self.nodes:
            self.nodes[name].silent = True

    def strike(self, name: str, job: str, end: RunEnd, now_ns: int) -> None:
        """A run on a node ends without an order: that job's. If its agent has fenced it, runs that are there instead meet the same."""
        there = [each for each in self.running.values() if name in each.nodes]
        struck = [each for each in there if each.job == job] or (there if end.outcome != "exit_unknown" else [])
        for execution in struck:
            rank = execution.nodes.index(name)
            if len(execution.nodes) == 1:
                self._over(execution)
                self._behaviour.lose(execution, now_ns)
            self._exit_rank(execution, rank, end, now_ns, 0)
            execution.ended |= 1 << rank

    def speak_again(self, name: str) -> None:
        """A silent node reports what became of its runs, and that their devices are free."""
        node, known = self.nodes.get(name), self._state().nodes.get(name)
        if node is None or not node.silent:
            return
        node.silent = False
        if known is None or not known.lost:
            return
        for key, rank in known.held.items():
            run = self._state().runs[key]
            execution = self.running.get(key)
            if run.ended >> rank & 1:
                self._report(name, CleanSeen(n=0, job=run.job, attempt=run.attempt, rank=rank))
            elif execution is None or execution.over:
                self._exit(name, run.job, run.attempt, rank, STOPPED, clean=True, ran_ns=0)

    def forget(self, name: str, now_ns: int) -> None:
        """A node is removed from the cluster."""
        self._forget_runs(name, now_ns)
        self.nodes.pop(name, None)
        self._waiting.pop(name, None)

    def _forget_runs(self, name: str, now_ns: int, *, fenced: bool = False) -> None:
        """End the runs of a node without a word of it."""
        state = self._state()
        for execution in [each for each in self.running.values() if name in each.nodes]:
            job = state.jobs.get(execution.job.partition("_")[0])
            if fenced and job is not None and job.on_partition.stop_after_ns < 0:
                continue
            if len(execution.nodes) == 1 or execution.ended | 1 << execution.nodes.index(name) == execution.all_ranks:
                self._over(execution)
                self._behaviour.lose(execution, now_ns)
            else:
                execution.ended |= 1 << execution.nodes.index(name)

    def adopt(self, state: ClusterState, now_ns: int) -> None:
        """Take over nodes and runs from the state of a log's middle."""
        for node in state.nodes.values():
            self.nodes[node.name] = _Node(node.incarnation, node.boot_id, node.inventory, node.reported)
            self.nodes[node.name].silent = node.lost
        for run in sorted(state.runs.values(), key=_pushed_ns):
            self._adopt(run, now_ns)
        for name, plan in state.layouts.items():
            order = LayoutOrder(
                gpu=plan.gpu, plan=plan.sequence, mode=plan.mode, destroy=plan.destroy, create=plan.create
            )
            at_ns = max(now_ns, plan.at_ns + self._behaviour.cutting_ns(name))
            self._at(at_ns, None, lambda now_ns, name=name, order=order: self._repartition(name, order))
        state.touched = set()

    def _adopt(self, run: PlacedRun, now_ns: int) -> None:
        execution = Execution(
            run.job, run.attempt, tuple([part.node for part in run.parts]), _units(run), run.placed_ns
        )
        execution.ended = run.ended
        for rank, node in enumerate(execution.nodes):
            if run.ended >> rank & 1 and not run.released >> rank & 1 and not self.nodes[node].silent:
                self._clean_later(execution, rank, now_ns)
        if run.ended == run.all_ranks:
            return
        if run.started == run.all_ranks:
            execution.started_ns = max(run.began_ns, 1)
        self.running[execution.key] = execution
        script = execution.script = self._behaviour.begin(execution, now_ns)
        if execution.started_ns:
            self._run_on(execution, now_ns)
        else:
            self._schedule_starts(execution, script, now_ns, run.started)
        if run.is_stopping:
            self._stop(execution, run, now_ns)

    # ------------------------------------------------------------------ what happens to runs

    def see(self, events: Iterable[Event], now_ns: int) -> None:
        """Do what a commit asks for: first what its events name, in their order, then what else follows from the state."""
        for event in events:
            match event:
                case JobPlaced():
                    self._start(event, now_ns)
                case PreemptionStarted() | JobStopRequested():
                    self._stop_if_ordered(run_key(event.job, event.attempt), now_ns)
                case NodeRemoved():
                    self.forget(event.node, now_ns)
                case MigLayoutPlanned():
                    self._plan(event.node, now_ns)
                case _:
                    pass
        self._follow_orders(now_ns)

    def _follow_orders(self, now_ns: int) -> None:
        state = self._state()
        if not state.touched:
            return
        touched, state.touched = state.touched, set()
        for name in sorted(touched) if len(touched) > 1 else touched:
            node = state.nodes.get(name)
            for key in node.held if node is not None else ():
                if state.runs[key].is_stopping:
                    self._stop_if_ordered(key, now_ns)

    def _stop_if_ordered(self, key: str, now_ns: int) -> None:
        execution = self.running.get(key)
        if execution is None or execution.stopped:
            return
        run = self._state().runs.get(key)
        if run is not None and run.is_stopping:
            self._stop(execution, run, now_ns)

    def _stop(self, execution: Execution, run: PlacedRun, now_ns: int) -> None:
        execution.stopped = True
        due_ns = now_ns
        if run.ran_ns and execution.started_ns:
            due_ns = max(due_ns, execution.started_ns + run.ran_ns)
        self._at(
            due_ns + self._behaviour.stop_delay_ns(execution), execution, lambda now_ns: self._end(execution, now_ns)
        )

    def _start(self, placed: JobPlaced, now_ns: int) -> None:
        nodes = tuple([part.node for part in placed.parts])
        execution = Execution(placed.job, placed.attempt, nodes, placed.units, now_ns)
        self.running[execution.key] = execution
        script = execution.script = self._behaviour.begin(execution, now_ns)
        self._schedule_starts(execution, script, now_ns, 0)

    def _schedule_starts(self, execution: Execution, script: RunScript, now_ns: int, started: int) -> None:
        if script.failure is not None:
            at_ns = max([now_ns, *(execution.placed_ns + each for each in script.delays_ns)])
            self._at(at_ns, execution, lambda now_ns: self._fail_to_start(execution, script.failure or STOPPED, now_ns))
            return
        by_time: dict[int, list[int]] = {}
        for rank in range(len(execution.nodes)):
            if not started >> rank & 1:
                delay_ns = script.delays_ns[rank] if rank < len(script.delays_ns) else max(script.delays_ns, default=0)
                by_time.setdefault(max(now_ns, execution.placed_ns + delay_ns), []).append(rank)
        last_ns = max(by_time, default=now_ns)
        for at_ns, ranks in sorted(by_time.items()):
            if at_ns <= now_ns:
                self._begin(execution, ranks, at_ns == last_ns, now_ns)
            else:
                self._at(
                    at_ns,
                    execution,
                    lambda now_ns, ranks=ranks, last=at_ns == last_ns: self._begin(execution, ranks, last, now_ns),
                )

    def _begin(self, execution: Execution, ranks: list[int], is_last: bool, now_ns: int) -> None:
        for rank in ranks:
            if not execution.ended >> rank & 1:
                self._report(
                    execution.nodes[rank],
                    StartSeen(
                        n=0, job=execution.job, attempt=execution.attempt, rank=rank, image=execution.script.image
                    ),
                )
        if is_last:
            execution.started_ns = now_ns
            self._run_on(execution, now_ns)

    def _run_on(self, execution: Execution, now_ns: int) -> None:
        """Schedule what a started run does from now on."""
        script, started_ns = execution.script, execution.started_ns
        for offset_ns, note in script.saves:
            if started_ns + offset_ns > now_ns:
                self._at(
                    started_ns + offset_ns, execution, lambda now_ns, note=note: self._save(execution, note, now_ns)
                )
        for offset_ns, call in script.calls:
            self._at(max(now_ns, started_ns + offset_ns), execution, lambda now_ns, call=call: call())
        if script.length_ns is not None:
            self._at(max(now_ns, started_ns + script.length_ns), execution, lambda now_ns: self._end(execution, now_ns))

    def _save(self, execution: Execution, note: str, now_ns: int) -> None:
        self._report(
            execution.nodes[0],
            CheckpointSeen(n=0, job=execution.job, attempt=execution.attempt, rank=0, at_ns=now_ns, note=note),
        )

    def _fail_to_start(self, execution: Execution, failure: RunEnd, now_ns: int) -> None:
        self._over(execution)
        rank = min(failure.rank, len(execution.nodes) - 1)
        self._exit_all(execution, rank, failure, now_ns, 0)

    def _exit_all(self, execution: Execution, rank: int, end: RunEnd, now_ns: int, ran_ns: int) -> None:
        """The rank that decides the outcome ends, and then the others: well if it did, else because they are stopped."""
        rest_ns, other = execution.script.rest_ns, end if end.is_success else STOPPED
        self._exit_rank(execution, rank, end, now_ns, ran_ns)
        for each in range(len(execution.nodes)):
            if each == rank:
                continue
            if rest_ns:
                self._at(
                    now_ns + rest_ns,
                    None,
                    lambda now_ns, each=each: self._exit_rank(
                        execution, each, other, now_ns, ran_ns and ran_ns + rest_ns
                    ),
                )
            else:
                self._exit_rank(execution, each, other, now_ns, ran_ns)

    def _exit_rank(self, execution: Execution, rank: int, end: RunEnd, now_ns: int, ran_ns: int) -> None:
        if execution.ended >> rank & 1:
            return
        delay_ns = self._behaviour.clean_delay_ns(execution, rank)
        self._exit(
            execution.nodes[rank], execution.job, execution.attempt, rank, end, clean=not delay_ns, ran_ns=ran_ns
        )
        if delay_ns:
            self._clean_later(execution, rank, now_ns)

    def _end(self, execution: Execution, now_ns: int) -> None:
        self._over(execution)
        end = self._behaviour.finish(execution, now_ns)
        ran_ns = now_ns - execution.started_ns if self._behaviour.has_clocks and execution.started_ns else 0
        if end.outcome == "stopped" or end.rank >= len(execution.nodes):
            for rank in range(len(execution.nodes)):
                self._exit_rank(execution, rank, end, now_ns, ran_ns)
        else:
            self._exit_all(execution, end.rank, end, now_ns, ran_ns)

    def _over(self, execution: Execution) -> None:
        execution.over = True
        self.running.pop(execution.key, None)

    def _clean_later(self, execution: Execution, rank: int, now_ns: int) -> None:
        node = execution.nodes[rank]
        report = CleanSeen(n=0, job=execution.job, attempt=execution.attempt, rank=rank)
        due_ns = now_ns + self._behaviour.clean_delay_ns(execution, rank)
        self._at(due_ns, None, lambda now_ns: self._report(node, report))

    def _exit(self, node: str, job: str, attempt: int, rank: int, end: RunEnd, *, clean: bool, ran_ns: int) -> None:
        self._report(
            node,
            ExitSeen(
                n=0,
                job=job,
                attempt=attempt,
                rank=rank,
                outcome=end.outcome,
                exit_code=end.exit_code,
                signal=end.signal,
                message=end.message,
                fault=end.fault,
                blames=end.blames,
                clean=clean,
                ran_ns=ran_ns,
            ),
        )

    # ------------------------------------------------------------------ MIG

    def _plan(self, name: str, now_ns: int) -> None:
        plan = self._state().layouts.get(name)
        if plan is not None:
            order = LayoutOrder(
                gpu=plan.gpu, plan=plan.sequence, mode=plan.mode, destroy=plan.destroy, create=plan.create
            )
            self._at(now_ns + self._behaviour.cutting_ns(name), None, lambda now_ns: self._repartition(name, order))

    def _repartition(self, name: str, order: LayoutOrder) -> None:
        node = self.nodes.get(name)
        if node is None or node.silent:
            return
        node.inventory, failure = cut(node.inventory, order)
        self._report(
            name, InventorySeen(n=0, boot_id=node.boot_id, inventory=node.inventory, plan=order.plan, failure=failure)
        )

    # ------------------------------------------------------------------ time

    def _at(self, at_ns: int, execution: Execution | None, act: _Act) -> None:
        self._serial += 1
        heappush(self._due, (at_ns, self._serial, execution, act))

    def next_ns(self) -> int | None:
        """Return the time of the next thing that happens on a node in ns, None if nothing will."""
        while self._due and (execution := self._due[0][2]) is not None and execution.over:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def pass_time(self, now_ns: int) -> None:
        """Do what has come to its time."""
        while self._due and self._due[0][0] <= now_ns:
            _, _, execution, act = heappop(self._due)
            if execution is None or not execution.over:
                act(now_ns)

    # ------------------------------------------------------------------ reports

    def _report(self, name: str, report: Report) -> None:
        node = self.nodes.get(name)
        if node is not None:
            node.reported += 1
            self._waiting.setdefault(name, []).append(msgspec.structs.replace(report, n=node.reported))

    def reports(self) -> list[Input]:
        """Return the next reports for the placer, from the longest waiting nodes first."""
        inputs: list[Input] = []
        count = 0
        for name, waiting in self._waiting.items():
            node = self.nodes[name]
            if node.silent:
                continue
            count += len(waiting)
            if inputs and count > REPORTS_MAX:
                break
            body = ReportBatch(node=name, incarnation=node.incarnation, reports=waiting)
            inputs.append(Input("report", waiting[-1].n, body))
        return inputs

    def taken(self, cursors: Mapping[str, int]) -> None:
        """The placer has taken up reports up to these numbers."""
        for source, number in cursors.items():
            if source.startswith(REPORT_CURSOR):
                name = source[len(REPORT_CURSOR) :]
                unconfirmed = [report for report in self._waiting.pop(name) if report.n > number]
                if unconfirmed:
                    self._waiting[name] = unconfirmed


def _units(run: PlacedRun) -> int:
    return sum(part.tasks for part in run.parts)


def _pushed_ns(run: PlacedRun) -> tuple[int, int]:
    """Return when the end of an adopted run was settled: as it started."""
    return run.began_ns or run.placed_ns, run.epoch


def _with_instances(inventory: Inventory, before: Inventory) -> Inventory:
    """The inventory with the MIG layout that its GPUs have had here."""
    made = {gpu.uuid: gpu for gpu in before.gpus}
    gpus = tuple([_laid_out(gpu, made.get(gpu.uuid)) for gpu in inventory.gpus])
    return inventory if gpus == inventory.gpus else msgspec.structs.replace(inventory, gpus=gpus)


def _laid_out(gpu: Gpu, before: Gpu | None) -> Gpu:
    if before is None or (before.mig, before.instances) == (gpu.mig, gpu.instances):
        return gpu
    return msgspec.structs.replace(gpu, mig=before.mig, instances=before.instances)
