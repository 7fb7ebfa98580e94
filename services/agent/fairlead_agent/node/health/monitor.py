"""The shell around the health of one node: looks every few seconds, reads the XIDs, examines before work comes and after it went
wrong, and tells the agent what to report. It holds no rules. Start at `HealthMonitor.run`.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import msgspec

from fairlead_agent.core.ledger import Ledger
from fairlead_agent.core.runs import Exit, RunKey, key_of
from fairlead_agent.devices.port import Devices, GpuHealth
from fairlead_agent.files.guard_files import boottime_ns
from fairlead_agent.linux.kernel_log import KernelLog, gpus_by_address
from fairlead_agent.node.health import gate as keeping
from fairlead_agent.node.health.checks import Dirt, HealthFacts, Kill, all_findings
from fairlead_agent.node.health.collect import FactCollector
from fairlead_agent.node.health.fault_localization import describe
from fairlead_agent.node.health.finding_reports import Change, HealthWatch, XidNotes
from fairlead_agent.node.health.gate import Gate
from fairlead_agent.node.health.peer_check import meet
from fairlead_agent.node.health.preflight import Examination, PreflightVerdict, judged
from fairlead_agent.node.health.probe import test_gpus, test_peers
from fairlead_agent.node.metrics.exposition import Xids
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.settings import Settings
from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS, SECOND_NS
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.reports import HealthSeen

#: A run of so long is followed by a check, however it has ended.
LONG_NS = HOUR_NS
#: The short test of a GPU, after such runs and before the start of a gang; and what the latter may take in all.
SHORT_S = 1.0
BEFORE_S = 20.0
#: GPUs that a test would give back are tried again after so long.
TRY_AGAIN_NS = MINUTE_NS
#: An answer to a beat says the placer's time well enough when it was under way for less than this.
ROUND_TRIP_NS = SECOND_NS // 2


class HealthEvents(Protocol):
    """Receiver of health changes, which reports them and introduces the node."""

    def ailed(self, seen: list[HealthSeen]) -> None:
        """Report these changes."""
        ...

    def introduce(self) -> None:
        """Introduce the node again, because its description has changed."""
        ...


class HealthMonitor:
    """Health monitoring of one node."""

    def __init__(
        self,
        settings: Settings,
        devices: Devices,
        runtime: Runtime,
        ledger: Ledger,
        boot_id: str,
        events: HealthEvents,
        *,
        collector: FactCollector | None = None,
        loads: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._settings, self._devices, self._ledger, self._events = settings, devices, ledger, events
        self._collector = collector or FactCollector(settings, devices, runtime)
        self._loads = loads
        self._boot_id = boot_id
        self._file = settings.directory / "health.json"
        self._kept = keeping.load(self._file, boot_id)
        first = self._kept.kmsg < 0 and not ledger.reported
        self._log = KernelLog(None if first else self._kept.kmsg)
        self._addresses = gpus_by_address()
        self._watch = HealthWatch(boot_id, ledger.ailing)
        self._notes = XidNotes()
        self.gate = Gate(self._preflight, self._gate_changed, self._preflight_done)
        #: Held back until the node has introduced itself.
        self._changes: list[Change] | None = []
        self._before: HealthFacts | None = None
        self._skew_ns: int | None = None
        self._since: dict[RunKey, int] = {}
        self._kills: dict[RunKey, int] = {}
        self._dirty: dict[RunKey, int] = {}
        self._tested_ns: dict[str, int] = {}
        #: {GPU: the newest XID and how many}, since this was opened.
        self.xids: dict[str, Xids] = {}

    # -- life

    async def begin(self) -> None:
        """Before the node introduces itself: one that has not passed in this boot is closed until it has."""
        for run in self._ledger.runs.values():
            if run.open:
                self._since[run.key] = time.monotonic_ns()
        if not self._kept.passed:
            await self.gate.close_at_join()

    async def run(self) -> None:
        """Check the node's health periodically, without end."""
        held, self._changes = self._changes or [], None
        self._tell(held)
        while True:
            await self.look()
            await asyncio.sleep(self._settings.health_s)

    async def look(self) -> None:
        """Once: XIDs, then every check, then GPUs that may be well again."""
        now_ns = time.monotonic_ns()
        self._read_xids(now_ns)
        facts = await self._facts()
        self._tell(self._watch.look(all_findings(facts, self._before), now_ns))
        self._before = facts
        await self._try_again(now_ns)
        if self._kept.kmsg != self._log.sequence:
            self._kept.kmsg = self._log.sequence
            keeping.save(self._file, self._kept)

    async def close(self) -> None:
        """Stop the monitoring."""
        await self.gate.stop()
        self._log.close()

    @property
    def gpus(self) -> tuple[GpuHealth, ...]:
        """Health of the GPUs at the last look; empty before the first."""
        return () if self._before is None else self._before.gpus

    # -- what the agent reports to it

    def take_placer_time(self, wall_ns: int, beat_ns: int) -> None:
        """Compare the clocks: the placer's time, in answer to the beat of that (boot) time."""
        under_way_ns = boottime_ns() - beat_ns
        if wall_ns and 0 < under_way_ns < ROUND_TRIP_NS:
            self._skew_ns = time.time_ns() - wall_ns - under_way_ns // 2

    def started(self, key: RunKey) -> None:
        """Take note that a run has begun."""
        self._since[key] = time.monotonic_ns()

    def killed(self, key: RunKey) -> None:
        """Take note that a run was killed, and should end."""
        self._kills.setdefault(key, time.monotonic_ns())

    def ended(self, key: RunKey, exit: Exit) -> Exit:
        """Return the exit of an ended run, with the evidence from its GPUs."""
        self._kills.pop(key, None)
        return self._notes.annotated(key, exit)

    def wants_check(self, key: RunKey, exit: Exit, *, requested: bool) -> bool:
        """Return True if the node must be checked after this end: a failure that was not requested, or a long run.

        Must be called only once per run.
        """
        lasted_ns = time.monotonic_ns() - self._since.pop(key, time.monotonic_ns())
        failed = not requested and (exit.signal is not None or exit.code not in (0, None))
        return failed or lasted_ns >= LONG_NS

    def noticed(self, code: str, evidence: str) -> None:
        """Report a finding of another part of the agent about the node; "": it is over."""
        self._tell(self._watch.report(code, evidence, time.monotonic_ns()))

    # -- examinations

    async def short(self, gpus: Collection[str], key: RunKey | None = None) -> PreflightVerdict:
        """Test these GPUs and judge them together with the node's quickly known facts. Findings are reported.

        `key` is the run for which the GPUs are, or were, held.
        """
        tests = await test_gpus(self._devices, self._testable(gpus, key), self._seconds(SHORT_S))
        return self._judged(Examination(await self._facts(), tests=tests), floors=False, only=gpus)

    async def before(self, order: RunOrder) -> tuple[str, int | None]:
        """Before this node's part of a gang starts: "" or why it shall not; and the rank to blame, where it is another one."""
        failure = await self._fit(order)
        if failure or not 0 < self._settings.meet_nodes <= len(order.hosts):
            return failure, None
        found = await meet(order)
        text = "" if found.clean else describe(found, order.hosts)
        named = (*found.culprits, *(rank for path in found.paths for rank in path))
        mine = order.rank in named
        self._tell(self._watch.report("meeting", text if mine else "", time.monotonic_ns()))
        return text, None if mine or not named else named[0]

    async def _fit(self, order: RunOrder) -> str:
        try:
            async with asyncio.timeout(BEFORE_S):
                verdict = await self.short(order.gpus, key_of(order))
        except TimeoutError:
            return f"the check before the start did not end within {BEFORE_S:g} s"
        return verdict.failure or "; ".join(f"{gpu}: {why}" for gpu, why in verdict.gpus.items())

    async def _preflight(self) -> PreflightVerdict:
        """Run the full examination: every GPU without a run, copies between them, and versions."""
        facts = await self._facts()
        idle = self._testable([gpu.uuid for gpu in facts.gpus if not gpu.lost])
        peers = await test_peers(self._devices, idle) if self._settings.preflight_s else ()
        tests = await test_gpus(self._devices, idle, self._settings.preflight_s)
        versions = await self._in_thread(self._collector.versions)
        verdict = self._judged(
            Examination(facts, versions, tests, peers),
            floors=self._settings.floors(real_gpus=bool(facts.gpus) and not self._devices.simulated),
        )
        there = sum(not gpu.lost for gpu in facts.gpus)
        self._kept = msgspec.structs.replace(self._kept, passed=not verdict.failure, gpus=max(self._kept.gpus, there))
        keeping.save(self._file, self._kept)
        return verdict

    def _judged(self, found: Examination, *, floors: bool, only: Collection[str] = ()) -> PreflightVerdict:
        """Judge an examination, start its consequences, and return the verdict.

        GPUs that failed are out, the other tested GPUs may be well again, and a node that is not fit closes its gate.
        """
        verdict, now_ns = judged(found, floors=floors, only=only), time.monotonic_ns()
        for gpu in found.tests:
            self._tested_ns[gpu] = now_ns
            self._tell(self._watch.tested(gpu, found.tests[gpu] or verdict.gpus.get(gpu, ""), now_ns))
        if verdict.failure and not self.gate.closed:
            self.gate.close()
        return verdict

    async def _try_again(self, now_ns: int) -> None:
        due = [gpu for gpu in self._watch.suspects if now_ns - self._tested_ns.get(gpu, 0) >= TRY_AGAIN_NS]
        if idle := self._testable(due):
            await self.short(idle)
            self._tested_ns.update(dict.fromkeys(idle, now_ns))

    # -- facts

    async def _facts(self) -> HealthFacts:
        expected = self._settings.gpu_count or self._kept.gpus
        facts = await self._in_thread(
            lambda: self._collector.facts(gpus_expected=expected, skew_ns=self._skew_ns, loads=self._loads())
        )
        return facts._replace(dirt=self._dirt(facts.now_ns), kills=tuple(self._unkilled()))

    async def _in_thread[T](self, work: Callable[[], T]) -> T:
        if self._devices.simulated and not self._collector.asks_engine:
            return work()
        return await asyncio.to_thread(work)

    def _dirt(self, now_ns: int) -> tuple[Dirt, ...]:
        runs = [run for run in self._ledger.runs.values() if run.phase == "ended"]
        self._dirty = {run.key: self._dirty.get(run.key, now_ns) for run in runs}
        return tuple(Dirt(run.key.name, run.gpus, self._dirty[run.key]) for run in runs)

    def _unkilled(self) -> list[Kill]:
        runs = self._ledger.runs
        return [Kill(key.name, runs[key].gpus, at) for key, at in self._kills.items() if key in runs and runs[key].open]

    def _testable(self, gpus: Collection[str], key: RunKey | None = None) -> list[str]:
        """Return the GPUs that no other run holds, sorted: a test takes all free memory. A GPU in MIG mode is left out, because it
        cannot be used as one.
        """
        runs = self._ledger.runs.values()
        held = {gpu for run in runs if run.phase != "clean" and run.key != key for gpu in run.gpus}
        cut = {gpu.uuid for gpu in self._devices.gpus() if gpu.mig}
        return sorted(set(gpus) - held - cut)

    def _read_xids(self, now_ns: int) -> None:
        seen = [(self._addresses.get(line.pci, ""), line.code, line.evidence) for line in self._log.new()]
        seen += [(xid.uuid, xid.code, f"XID {xid.code}, by the driver") for xid in self._devices.xids()]
        for gpu, code, evidence in seen:
            if gpu:
                self.xids[gpu] = Xids(code, self.xids.get(gpu, Xids()).total + 1)
                self._notes.add(gpu, code, self._ledger.runs.values())
                self._tell(self._watch.xid(gpu, code, evidence, now_ns))

    # -- reports

    def _preflight_done(self, failure: str) -> None:
        self._tell(self._watch.report("preflight", failure, time.monotonic_ns()))

    def _gate_changed(self, closed: bool) -> None:
        if closed and self._kept.passed:
            self._kept.passed = False
            keeping.save(self._file, self._kept)
        if self._changes is None:
            self._events.introduce()

    def _tell(self, changes: list[Change]) -> None:
        if self._changes is not None:
            self._changes += changes
        elif changes:
            at_ns = time.time_ns()
            self._events.ailed(
                [
                    HealthSeen(
                        n=0, gpu=each.gpu, code=each.code, evidence=each.evidence[:500], over=each.over, at_ns=at_ns
                    )
                    for each in changes
                ]
            )

    def _seconds(self, wanted: float) -> float:
        return min(wanted, self._settings.preflight_s)
