"""A simulated node: processes that run for a while, and devices that stay busy for a while after them.

It is the ground truth: whether a device had two processes, or a rank was started twice, is seen here and
nowhere else, whatever the log says. It knows no log, no placer and no agent beyond two callbacks.

Devices of one machine that processes hold, as the machine sees them; and GPUs repartitioned as a driver does it.

The ground truth of I1 beyond whole GPUs: shares with a sum above one GPU, an instance that is missing or held by two
processes, CPUs to which two processes are pinned.
"""

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Literal

import msgspec

from fairlead_agent.core.runs import CheckpointMark, Exit, Found, RunKey, key_of
from fairlead_replay.inventories import booted, cut
from fairlead_schemas.units.hardware import parse_cpus
from fairlead_schemas.wire.desired import LayoutOrder, RunOrder
from fairlead_schemas.wire.resources import Gpu, Inventory

MILLI = 1000
#: Code of a node whose own checks fail: it closes its gate, and starts no part of a gang.
UNFIT = "unfit"


def shared_devices(order: RunOrder, other: RunOrder) -> list[str]:
    """Return the devices that both orders hold although only one may: instances, GPUs, CPUs."""
    if instances := set(order.instances) & set(other.instances):
        return sorted(instances)
    gpus = set(order.gpus) & set(other.gpus)
    if gpus and not (order.instances and other.instances) and not _are_shares(order, other):
        return sorted(gpus)
    if order.cpus and other.cpus:
        return [f"CPU {cpu}" for cpu in sorted(set(parse_cpus(order.cpus)) & set(parse_cpus(other.cpus)))]
    return []


def _are_shares(*orders: RunOrder) -> bool:
    return all(order.gpu_milli and not order.instances for order in orders)


def misfit(order: RunOrder, others: Iterable[RunOrder], inventory: Inventory) -> str:
    """Return a description of the devices that the machine lacks for the order in addition to the others, "" if none."""
    there = {each.uuid: gpu.uuid for gpu in inventory.gpus for each in gpu.instances}
    for gpu, instance in zip(order.gpus, order.instances, strict=False):
        if there.get(instance) != gpu:
            return f"there is no instance {instance} on {gpu}"
    if not order.instances and (cut := {gpu.uuid for gpu in inventory.gpus if gpu.mig} & set(order.gpus)):
        return f"{sorted(cut)} are in MIG mode"
    used: dict[str, int] = {}
    for each in (order, *others):
        for gpu in each.gpus if _are_shares(each) else ():
            used[gpu] = used.get(gpu, 0) + each.gpu_milli
    over = {gpu: milli for gpu, milli in used.items() if milli > MILLI and gpu in order.gpus}
    return f"shares of a GPU are more than all of it: {over}" if over else ""


def in_use(order: LayoutOrder, others: Iterable[RunOrder]) -> str:
    """Return a run that holds an instance or GPU that the layout removes, "" if there is none."""
    going = {each.uuid for each in order.destroy}
    for other in others:
        if going & set(other.instances) or (order.mode and order.gpu in other.gpus):
            return f"{other.job}.{other.attempt}"
    return ""


class Truth(AssertionError):
    """Something happened on a machine that must never happen."""


class SimWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Behaviour of a simulated job, in the place of a job file."""

    run_ms: int = 1000
    #: Chance in percent that a rank exits with 1.
    fails_pct: int = 0
    #: True: TERM changes nothing, it takes KILL.
    stubborn: bool = False
    #: The job's word that it is never to run twice.
    strict: bool = False
    #: Time between saves, and each next attempt resumes from the last save; 0: it never saves and all work is
    #: lost.
    saves_ms: int = 0
    #: Reaction to a notice: save and exit with 0, save and continue, or nothing.
    answer: Literal["exit", "save", ""] = ""
    #: Time from its start until its application serves; -1: it has none that ever does.
    serves_ms: int = -1


class SimProcess:
    """Process of one rank; it stays listed until its devices are free."""

    def __init__(self, order: RunOrder, work: SimWork, exit: Exit) -> None:
        self.key = key_of(order)
        self.order = order
        self.work = work
        self.exit = exit
        self.running = True
        self.timer: asyncio.TimerHandle | None = None
        #: When it will save next; from when, and from how much work on, this process works (virtual seconds).
        self.saver: asyncio.TimerHandle | None = None
        self.since, self.began_with = 0.0, 0.0


class Starts:
    """Every start of every rank on any machine: at most one each, ever, and no attempt concurrent with an earlier one."""

    def __init__(self, settled_s: float) -> None:
        self.nodes: dict[RunKey, str] = {}
        #: Virtual seconds at which each rank's process began and ended; None while it runs.
        self.times: dict[RunKey, tuple[float, float | None]] = {}
        #: {job: seconds of its work that are saved}, on a disk that all nodes have.
        self.saved: dict[str, float] = {}
        self.machines: list[SimMachine] = []
        #: An agent that has lived for so long has had its chance to fence.
        self.settled_s = settled_s

    def ran_ns(self, job: str, attempt: int) -> int:
        """For how long the attempt's longest process has really run."""
        now = asyncio.get_running_loop().time()
        times = [each for key, each in self.times.items() if (key.job, key.attempt) == (job, attempt)]
        return max((int(((now if ended is None else ended) - began) * 1e9) for began, ended in times), default=0)

    def over(self, key: RunKey) -> None:
        """A process has ended."""
        self.times[key] = self.times[key][0], asyncio.get_running_loop().time()

    def add(self, key: RunKey, node: str, *, strict: bool) -> None:
        """Record the start of a process.

        Raises Truth if the process was started before, or if an earlier attempt runs where an agent should have ended
        it. Without a live agent no part can end it; then only strict jobs have this guarantee.
        """
        if key in self.nodes:
            raise Truth(f"I4: {key.name} was started on {self.nodes[key]} and again on {node}")
        self.nodes[key] = node
        now = asyncio.get_running_loop().time()
        self.times[key] = now, None
        for machine in self.machines:
            settled = machine.attended_since is not None and now - machine.attended_since >= self.settled_s
            for other in machine.processes.values():
                another = other.running and other.key.job == key.job and other.key.attempt != key.attempt
                if another and (settled or strict):
                    raise Truth(f"I4: {key.name} was started on {node} while {other.key.name} runs on {machine.name}")


class SimMachine:
    """Hardware and kernel of one node. `exited` and `cleaned` are called while an agent listens."""

    def __init__(self, name: str, gpu_count: int, rng: Random, starts: Starts, linger_s: float) -> None:
        self.name = name
        self.boot = 1
        #: What is not well: {(GPU, or "" for the machine itself, code)}.
        self.ills: set[tuple[str, str]] = set()
        self.rng, self.starts, self.linger_s = rng, starts, linger_s
        self.processes: dict[RunKey, SimProcess] = {}
        #: Of this boot: what was started, and how it ended.
        self.ended: dict[RunKey, Exit] = {}
        self.seen: set[RunKey] = set()
        #: Last checkpoint mark of each run, as in its file, and the callback that receives one while it is current.
        self.marks: dict[RunKey, CheckpointMark] = {}
        self.marked: Callable[[RunKey], None] | None = None
        #: Since when an agent has lived here (virtual seconds); None while none does.
        self.attended_since: float | None = None
        #: Its agents' lease file: the boot, and when the lease was renewed.
        self.lease: tuple[str, int] = "", 0
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
        """Add labels to the inventory that the machine's agent reports."""
        self.inventory = msgspec.structs.replace(self.inventory, labels={**self.inventory.labels, **labels})

    @property
    def unfit(self) -> bool:
        """True if the machine's own checks fail."""
        return ("", UNFIT) in self.ills

    @property
    def boot_id(self) -> str:
        """Another one after every reboot."""
        return f"{self.name}-boot-{self.boot}"

    def start(self, order: RunOrder) -> str:
        """Start a rank's process; returns why not, "" if it runs. Raises Truth where the placer or the agent
        has broken its word."""
        key = key_of(order)
        for process in self.processes.values():
            if shared := shared_devices(order, process.order):
                what = "runs on" if process.running else "has not left"
                raise Truth(f"I1: {key.name} was started on {shared}, which {process.key.name} still {what}")
        if wrong := misfit(order, [each.order for each in self.processes.values()], self.inventory):
            raise Truth(f"I1: {key.name} was started on {self.name}: {wrong}")
        work = msgspec.json.decode(order.spec, type=SimWork)
        self.starts.add(key, self.name, strict=work.strict)
        self.seen.add(key)
        if self.rng.random() < 0.01:
            self.ended[key] = Exit(message="the runtime refused")
            return "the runtime refused"
        fails = self.rng.random() * 100 < work.fails_pct
        process = SimProcess(order, work, Exit(code=1 if fails else 0))
        self.processes[key] = process
        process.since, process.began_with = asyncio.get_running_loop().time(), self.starts.saved.get(key.job, 0.0)
        self._end_after(process, max(0.001, work.run_ms / 1000 - process.began_with))
        self._save_later(process)
        return ""

    def cut(self, order: LayoutOrder, *, refuses: bool) -> str:
        """Repartition a GPU and return the reason of a failure, "" if none. Raises Truth if an instance that is removed is
        in use.
        """
        if user := in_use(order, [each.order for each in self.processes.values()]):
            raise Truth(f"I1: {order.gpu} of {self.name} was repartitioned under {user}")
        refused = {place.profile for place in order.create} if refuses else ()
        self.inventory, failure = cut(self.inventory, order, refused)
        return failure

    def notice(self, key: RunKey) -> None:
        """Notify a run that its end is near; rank 0 of a running process may answer after a short delay."""
        process = self.processes.get(key)
        if process is not None and process.running and process.work.answer and key.rank == 0:
            asyncio.get_running_loop().call_later(self.rng.uniform(0.05, 1.5), self._answer, process)

    def _answer(self, process: SimProcess) -> None:
        if process.running:
            self._save(process)
            if process.work.answer == "exit":
                process.exit = Exit(code=0)
                self._end_after(process, 0.01)

    def _save_later(self, process: SimProcess) -> None:
        if process.work.saves_ms and process.order.checkpoint is not None and process.key.rank == 0:
            wait_s = process.work.saves_ms / 1000 * self.rng.uniform(0.5, 1.5)
            process.saver = asyncio.get_running_loop().call_later(wait_s, self._save_and_go_on, process)

    def _save_and_go_on(self, process: SimProcess) -> None:
        if process.running:
            self._save(process)
            self._save_later(process)

    def _save(self, process: SimProcess) -> None:
        now = asyncio.get_running_loop().time()
        done = process.began_with + now - process.since
        self.starts.saved[process.key.job] = done
        self.marks[process.key] = CheckpointMark(int(now * 1e9) + 1, f"second={done:.1f}")
        if self.marked is not None:
            self.marked(process.key)

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
        """Return the state of a run as a restarted agent finds it."""
        process = self.processes.get(key)
        if process is not None and process.running:
            return Found("running", mark=self.marks.get(key))
        if key not in self.seen:
            return Found("never")
        clean = process is None
        if key not in self.ended or self.rng.random() < 0.2:
            return Found("lost", clean=clean, mark=self.marks.get(key))
        return Found("ended", self.ended[key], clean, mark=self.marks.get(key))

    def busy(self, key: RunKey) -> bool:
        """True while a run's devices are not free."""
        return key in self.processes

    def clear(self) -> None:
        """End everything and free all devices at once (a reboot; or an agent that clears up before it joins)."""
        for process in self.processes.values():
            if process.running:
                self.starts.over(process.key)
            process.running = False
            for timer in (process.timer, process.saver):
                if timer is not None:
                    timer.cancel()
        self.processes.clear()

    def reboot(self) -> None:
        """The machine goes down and comes up."""
        self.clear()
        self.ended.clear()
        self.marks.clear()
        self.seen.clear()
        self.inventory = booted(self.inventory)
        self.boot += 1

    def _end_after(self, process: SimProcess, delay_s: float) -> None:
        if process.timer is not None:
            process.timer.cancel()
        process.timer = asyncio.get_running_loop().call_later(delay_s, self._end, process)

    def _end(self, process: SimProcess) -> None:
        process.running = False
        self.starts.over(process.key)
        self.ended[process.key] = process.exit
        linger_s = self.rng.random() * self.linger_s if process.order.gpus else 0.0
        if linger_s:
            process.timer = asyncio.get_running_loop().call_later(linger_s, self._free, process)
        else:
            del self.processes[process.key]
        if self.exited is not None:
            self.exited(process.key, process.exit, linger_s == 0.0)

    def _free(self, process: SimProcess) -> None:
        del self.processes[process.key]
        if self.cleaned is not None:
            self.cleaned(process.key)
