"""Small builders: a cell with policies and runs, and what a node says of them."""

from fairlead_replay.virtual.telemetry import VirtualTelemetry
from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import ExtendJob, SetIdlePolicies
from fairlead_schemas.wire.samples import GpuSample, RunResources, SampleBatch
from tests.telemetry.story import submitted

SECOND = 10**9
MINUTE = 60 * SECOND
START = 1_800_000_000 * SECOND


def policy(**fields) -> IdlePolicy:
    """GPU below 5 % for ten minutes: told, and five minutes later asked back."""
    given = {
        "rule": "utilization",
        "action": "stop",
        "mode": "always",
        "after_ns": 10 * MINUTE,
        "notice_ns": 5 * MINUTE,
    } | fields
    if given["rule"] == "utilization":
        given.setdefault("below", {"gpu": 50})
    return IdlePolicy(**given)


class Scene:
    """A cell, and nodes that say every five seconds how their runs are: `Scene.now["1"] = {"gpu": 80}`."""

    def __init__(self, *policies: IdlePolicy, scope: str = "global") -> None:
        self.cell = VirtualTelemetry(START)
        self.placed: dict[str, tuple[int, dict[str, int]]] = {}
        #: {job: its signals from now on}; of those that are not named a node says 0, and a terminal was never used.
        self.now: dict[str, dict[str, int | None]] = {}
        self._counted: dict[tuple[str, str], int] = {}
        self._typed: dict[str, int] = {}
        #: {job: when somebody last acted in its application}; a job that is not named has none.
        self._acted: dict[str, int] = {}
        self._n = 0
        self.silent: set[str] = set()
        if policies:
            self.set(scope, *policies)

    def set(self, scope: str, *policies: IdlePolicy, user: str = "root") -> ev.TelemetryEvent:
        """The policies of a scope; the answer."""
        self._n += 1
        [answer] = self.cell.ask(SetIdlePolicies(id=f"p{self._n}", user=user, scope=scope, policies=policies))
        return answer

    def extend(self, job: str, *, user: str = "ada", for_ns: int = 0) -> ev.TelemetryEvent:
        """Somebody extends a job; the answer."""
        self._n += 1
        [answer] = self.cell.ask(ExtendJob(id=f"x{self._n}", user=user, job=job, for_ns=for_ns))
        return answer

    def run(
        self, job: str, *, attempt: int = 1, user: str = "ada", project: str = "", kind: str = "session", **gpus: int
    ) -> None:
        """A job is submitted (its first attempt), placed and runs."""
        gpus = gpus or {f"n{job}": 1}
        if attempt == 1:
            self.cell.fold("queue", submitted(job, user=user, project=project, kind=kind))
        parts = tuple(
            ev.Part(node=node, gpus=tuple(f"GPU-{node}-{i}" for i in range(count))) for node, count in gpus.items()
        )
        self.cell.fold("placer", ev.JobPlaced(cause="clock", job=job, attempt=attempt, parts=parts))
        self.cell.fold("placer", ev.RunStarted(cause="clock", job=job, attempt=attempt))
        self.placed[job] = (attempt, gpus)

    def end(self, job: str) -> None:
        """Its run ends."""
        attempt, _ = self.placed.pop(job)
        self.cell.fold("placer", ev.RunEnded(cause="clock", job=job, attempt=attempt, outcome="stopped"))

    def types(self, job: str) -> None:
        """Somebody types in a terminal of it, now."""
        self._typed[job] = self.cell.now_ns

    def acts(self, job: str) -> None:
        """Somebody acts in its application, now."""
        self._acted[job] = self.cell.now_ns

    def go(self, minutes: float, every_s: int = 5) -> list[ev.TelemetryEvent]:
        """Time goes by, nodes say how they are; what was said meanwhile."""
        before, until = len(self.cell.published), self.cell.now_ns + int(minutes * MINUTE)
        while self.cell.now_ns < until:
            self.cell.advance(min(until, self.cell.now_ns + every_s * SECOND))
            for job in sorted(self.placed):
                self.measure(job, every_s)
        return [event for _, event in self.cell.published[before:]]

    def measure(self, job: str, passed_s: int) -> None:
        """Every node of the job says how it is."""
        attempt, gpus = self.placed[job]
        for node, count in gpus.items():
            if node not in self.silent:
                self.cell.feed(self.batch(job, attempt, node, count, self.now.get(job, {}), passed_s))

    def batch(
        self, job: str, attempt: int, node: str, gpus: int, signals: dict[str, int | None], passed_s: int
    ) -> SampleBatch:
        """What a node says. `gpu`: thousandths; `gpu.<node>`: of one node; cpu: milli; network: bytes per second."""
        self._n += 1
        run = f"{job}.{attempt}"
        busy = signals.get(f"gpu.{node}", signals.get("gpu", 0))
        samples = [
            GpuSample(
                uuid=f"GPU-{node}-{i}",
                run=run,
                utilization_pct=(busy or 0) // 10,
                memory_used_mib=1,
                memory_busy_pct=None if busy is None else 0,
            )
            for i in range(gpus)
        ]
        resources = RunResources(
            run=run,
            cpu_ms=self._count(run, node, "cpu", signals, passed_s) or 0,
            network_rx_bytes=self._count(run, node, "network", signals, passed_s),
            network_tx_bytes=0,
            terminal_ns=None if signals.get("terminal", 0) is None else self._typed.get(job, 0),
            proxy_ns=self._acted.get(job),
        )
        return SampleBatch(
            node=node, incarnation="a", n=self._n, at_ns=self.cell.now_ns, gpus=samples, resources=[resources]
        )

    def _count(self, run: str, node: str, name: str, signals: dict[str, int | None], passed_s: int) -> int | None:
        rate = signals.get(name, 0)
        if rate is None:
            return None
        key = (f"{run}.{node}", name)
        self._counted[key] = self._counted.get(key, 0) + rate * passed_s
        return self._counted[key]


def names(events: list[ev.TelemetryEvent]) -> list[str]:
    """Their types, in order."""
    return [type(event).__name__ for event in events]
