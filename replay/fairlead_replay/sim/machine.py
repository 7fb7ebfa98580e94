"""A simulated node: processes that run for a while, and devices that stay busy for a while after them.

It is the ground truth: whether a device had two processes, or a rank was started twice, is seen here and
nowhere else, whatever the log says. It knows no log, no placer and no agent beyond two callbacks.
"""

import asyncio
from collections.abc import Callable
from random import Random

import msgspec

from fairlead_agent.run import Exit, Found, RunKey, key_of
from fairlead_replay.sim import devices
from fairlead_schemas.desired import LayoutOrder, RunOrder
from fairlead_schemas.resources import Gpu, Inventory


class Truth(AssertionError):
    """Something happened on a machine that must never happen."""


class Work(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a simulated job does: it stands where a job file would."""

    run_ms: int = 1000
    #: Chance in percent that a rank exits with 1.
    fails_pct: int = 0
    #: True: TERM changes nothing, it takes KILL.
    stubborn: bool = False


class Process:
    """One rank's process; it stays listed until its devices are free."""

    def __init__(self, order: RunOrder, work: Work, exit: Exit) -> None:
        self.key = key_of(order)
        self.order = order
        self.work = work
        self.exit = exit
        self.running = True
        self.timer: asyncio.TimerHandle | None = None


class Starts:
    """Every start of every rank on any machine: at most one each, ever, and no attempt beside an earlier one."""

    def __init__(self, settled_s: float) -> None:
        self.nodes: dict[RunKey, str] = {}
        self.machines: list[Machine] = []
        #: An agent that has lived for so long has had its chance to fence.
        self.settled_s = settled_s

    def add(self, key: RunKey, node: str) -> None:
        """A process was started. Raises Truth if it was before, or if an earlier attempt runs where an agent
        should have ended it (where no agent lives nobody can: that is not promised)."""
        if key in self.nodes:
            raise Truth(f"I4: {key.name} was started on {self.nodes[key]} and again on {node}")
        self.nodes[key] = node
        now = asyncio.get_running_loop().time()
        for machine in self.machines:
            if machine.attended_since is None or now - machine.attended_since < self.settled_s:
                continue
            for other in machine.processes.values():
                if other.running and other.key.job == key.job and other.key.attempt != key.attempt:
                    raise Truth(f"I4: {key.name} was started on {node} while {other.key.name} runs on {machine.name}")


class Machine:
    """One node's hardware and kernel. `exited` and `cleaned` are called while an agent listens."""

    def __init__(self, name: str, gpu_count: int, rng: Random, starts: Starts, linger_s: float) -> None:
        self.name = name
        self.boot = 1
        self.rng, self.starts, self.linger_s = rng, starts, linger_s
        self.processes: dict[RunKey, Process] = {}
        #: Of this boot: what was started, and how it ended.
        self.ended: dict[RunKey, Exit] = {}
        self.seen: set[RunKey] = set()
        #: Since when an agent has lived here (virtual seconds); None while none does.
        self.attended_since: float | None = None
        starts.machines.append(self)
        self.exited: Callable[[RunKey, Exit, bool], None] | None = None
        self.cleaned: Callable[[RunKey], None] | None = None
        gpus = tuple(
            Gpu(uuid=f"GPU-{name}-{index}", index=index, model="sim", memory_mib=81920) for index in range(gpu_count)
        )
        self.inventory = Inventory(
            gpus=gpus, cpu_milli=16_000, memory_mib=65536, simulated=True, hostname=name, address=f"{name}.sim"
        )

    def label(self, labels: dict[str, str]) -> None:
        """What its agent reports of it says this, too."""
        self.inventory = msgspec.structs.replace(self.inventory, labels={**self.inventory.labels, **labels})

    @property
    def boot_id(self) -> str:
        """Another one after every reboot."""
        return f"{self.name}-boot-{self.boot}"

    def start(self, order: RunOrder) -> str:
        """Start a rank's process; returns why not, "" if it runs. Raises Truth where the placer or the agent
        has broken its word."""
        key = key_of(order)
        for process in self.processes.values():
            if shared := devices.shared(order, process.order):
                what = "runs on" if process.running else "has not left"
                raise Truth(f"I1: {key.name} was started on {shared}, which {process.key.name} still {what}")
        if wrong := devices.misfit(order, [each.order for each in self.processes.values()], self.inventory):
            raise Truth(f"I1: {key.name} was started on {self.name}: {wrong}")
        self.starts.add(key, self.name)
        self.seen.add(key)
        work = msgspec.json.decode(order.spec, type=Work)
        if self.rng.random() < 0.01:
            self.ended[key] = Exit(message="the runtime refused")
            return "the runtime refused"
        fails = self.rng.random() * 100 < work.fails_pct
        process = Process(order, work, Exit(code=1 if fails else 0))
        self.processes[key] = process
        self._end_after(process, work.run_ms / 1000)
        return ""

    def cut(self, order: LayoutOrder, *, refuses: bool) -> str:
        """Cut a GPU anew; returns why not. Raises Truth where somebody uses what goes."""
        if user := devices.in_use(order, [each.order for each in self.processes.values()]):
            raise Truth(f"I1: {order.gpu} of {self.name} was cut anew under {user}")
        refused = {place.profile for place in order.create} if refuses else ()
        self.inventory, failure = devices.cut(self.inventory, order, refused)
        return failure

    def terminate(self, key: RunKey) -> None:
        """TERM."""
        process = self.processes.get(key)
        if process is not None and process.running and not process.work.stubborn:
            process.exit = Exit(signal=15)
            self._end_after(process, self.rng.uniform(0.01, 0.5))

    def kill(self, key: RunKey) -> None:
        """KILL."""
        process = self.processes.get(key)
        if process is not None and process.running:
            process.exit = Exit(signal=9)
            self._end_after(process, 0.01)

    def find(self, key: RunKey) -> Found:
        """What an agent that comes back finds of a run."""
        process = self.processes.get(key)
        if process is not None and process.running:
            return Found("running")
        if key not in self.seen:
            return Found("never")
        clean = process is None
        if key not in self.ended or self.rng.random() < 0.2:
            return Found("lost", clean=clean)
        return Found("ended", self.ended[key], clean)

    def busy(self, key: RunKey) -> bool:
        """True while a run's devices are not free."""
        return key in self.processes

    def clear(self) -> None:
        """End everything and free all devices at once (a reboot; or an agent that clears up before it joins)."""
        for process in self.processes.values():
            if process.timer is not None:
                process.timer.cancel()
        self.processes.clear()

    def reboot(self) -> None:
        """The machine goes down and comes up."""
        self.clear()
        self.ended.clear()
        self.seen.clear()
        self.inventory = devices.booted(self.inventory)
        self.boot += 1

    def _end_after(self, process: Process, delay_s: float) -> None:
        if process.timer is not None:
            process.timer.cancel()
        process.timer = asyncio.get_running_loop().call_later(delay_s, self._end, process)

    def _end(self, process: Process) -> None:
        process.running = False
        self.ended[process.key] = process.exit
        linger_s = self.rng.random() * self.linger_s if process.order.gpus else 0.0
        if linger_s:
            process.timer = asyncio.get_running_loop().call_later(linger_s, self._free, process)
        else:
            del self.processes[process.key]
        if self.exited is not None:
            self.exited(process.key, process.exit, linger_s == 0.0)

    def _free(self, process: Process) -> None:
        del self.processes[process.key]
        if self.cleaned is not None:
            self.cleaned(process.key)
