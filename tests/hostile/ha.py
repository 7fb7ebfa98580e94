"""`python -m tests.hostile.ha [--rounds N] [--only KIND …] [--directory DIR]`: what people see while parts of a duplicated installation
die, as a timeline.

Two clients submit without a pause, one through each gateway, a third is a person's client with both addresses, and a fourth watches
events. Meanwhile the leader of each stream, each server, each writer's leader and each gateway goes in turn. Then the whole log is
read and compared with every answer. Exit 1 where something acknowledged was lost, ran twice, or a person saw an error.
"""

import argparse
import asyncio
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import httpx

from fairlead.errors import FairleadError
from fairlead_bus.lease import LeaseHolder
from fairlead_bus.nats import stream_setup
from fairlead_bus.nats.adapter import connect
from fairlead_replay.audit import read_log, verify_url
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import decode_commit
from tests.hostile.installation import WRITERS, Installation
from tests.kit.nats_server import NatsServer

PAUSE_S = 0.05
LOOK_S = 0.02
ENDED_S = 240.0
#: Seconds at p50 and p99 that each kind must reach.
BARS = {
    "leader of LOG killed": (9.0, 14.0),
    "server retired": (3.0, 4.0),
    "writer killed": (3.0, 4.0),
    "writer stopped": (0.4, 1.0),
}
FOLLOWED = ("queue", "placer")
#: Faults of servers, which are no reason for a writer to have another leader.
OF_SERVERS = ("leader of LOG killed", "leader of a stream killed", "server retired")
_CLOCK = time.time


class Fault(NamedTuple):
    """One fault, as it was made: times are Unix seconds."""

    kind: str
    what: str
    at: float
    #: Seconds until the stream, or the writer, had its next leader; None where none was lost.
    elected_s: float | None
    until: float
    #: Of these writers the first commit is looked for.
    writers: tuple[str, ...]
    #: Writers that have another leader than before, though no process of theirs was hurt.
    deposed: tuple[str, ...] = ()


class Line(NamedTuple):
    """What a fault cost, in seconds."""

    fault: Fault
    #: Longest time without a commit of the slowest writer.
    commit_s: float
    #: Longest time without an answer at the slower gateway.
    answer_s: float

    @property
    def cost_s(self) -> float:
        """What its bar is about."""
        return self.commit_s if self.fault.kind.startswith("writer") else self.answer_s


class Submits:
    """One client that submits through one gateway, each key until it is answered, without end."""

    def __init__(self, gateway: str, name: str) -> None:
        self.answers: list[float] = []
        self.jobs: dict[str, str] = {}
        self._gateway, self._name = gateway, name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with httpx.Client(base_url=self._gateway, timeout=20, headers={"X-Fairlead-User": "ada"}) as http:
            while not self._stop.is_set():
                key = f"{self._name}-{len(self.jobs)}"
                try:
                    answer = http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": key})
                    if answer.status_code in (200, 201):
                        self.jobs[key] = answer.json()["id"]
                        self.answers.append(_CLOCK())
                except httpx.TransportError:
                    pass
                self._stop.wait(PAUSE_S)

    def stop(self) -> None:
        """End, once the submit under way is answered."""
        self._stop.set()
        self._thread.join(60)


JOB = {"command": ["true"], "resources": {"cpu": "10m", "memory": "16Mi"}}


class Person:
    """A client with both addresses, that submits, and one that watches: nothing that they call may raise."""

    def __init__(self, here: Installation) -> None:
        self.errors: list[str] = []
        self.jobs: list[str] = []
        self.seen: Counter[str] = Counter()
        self._here = here
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._submit, self._watch)]
        for thread in self._threads:
            thread.start()

    def _submit(self) -> None:
        with self._here.client("eve") as client:
            while not self._stop.is_set():
                try:
                    result = client.submit(JOB)
                    self.jobs += [result.id] if result.id else []
                except FairleadError as error:
                    self.errors.append(f"submit: {type(error).__name__}: {error}")
                self._stop.wait(4 * PAUSE_S)

    def _watch(self) -> None:
        try:
            with self._here.client("eve") as client:
                for event in client.events(start=1, follow=True, types="JobSubmitted"):
                    self.seen[str(event.data.get("job"))] += 1
                    if self._stop.is_set():
                        return
        except FairleadError as error:
            self.errors.append(f"watch: {type(error).__name__}: {error}")

    def stop(self) -> None:
        """End. The watch ends with its next event."""
        self._stop.set()
        self._threads[0].join(60)


class Told(NamedTuple):
    """What the log says."""

    submitted: Counter[str]
    ends: Counter[str]
    starts: Counter[tuple[str, int]]
    commits: dict[str, list[float]]


class Session:
    """An installation under load, and the faults so far."""

    def __init__(self, here: Installation) -> None:
        self.here = here
        self.submits = [Submits(gateway, f"g{number}") for number, gateway in enumerate(here.gateways)]
        self.person = Person(here)
        self.faults: list[Fault] = []

    def _suffer(
        self,
        kind: str,
        what: str,
        fault: Callable[[], object],
        *,
        elected: Callable[[], bool] | None = None,
        mend: Callable[[], object],
        writers: tuple[str, ...] = (),
    ) -> None:
        """Make a fault, wait until all is answered again, and mend what does not mend itself."""
        self._wait_answers(2)
        before = self._leaders() if kind in OF_SERVERS else {}
        at = _CLOCK()
        fault()
        elected_s = self._wait_elected(at, elected) if elected is not None else None
        self._wait_answers(2)
        mend()
        self._wait_answers(2)
        until, after = _CLOCK(), self._leaders() if before else {}
        deposed = tuple(writer for writer, holder in after.items() if holder.word != before[writer].word)
        self.faults.append(Fault(kind, what, at, elected_s, until, writers, deposed))
        shown = "" if elected_s is None else f"  elected after {elected_s:4.1f} s"
        print(f"{time.strftime('%H:%M:%S', time.localtime(at))}  {kind:<26}{what:<30}{shown}", flush=True)

    def _leaders(self) -> dict[str, LeaseHolder]:
        found: dict[str, LeaseHolder] = {}

        def are_there() -> bool:
            found.update(self.here.holders())
            return len(found) == len(WRITERS)

        self.here.until(are_there, "every writer has a leader")
        return found

    def _wait_elected(self, at: float, elected: Callable[[], bool]) -> float:
        self.here.until(elected, "a new leader", look_s=LOOK_S)
        return _CLOCK() - at

    def _wait_answers(self, more: int) -> None:
        """Wait until each gateway has answered so many submits more."""
        wanted = [len(each.answers) + more for each in self.submits]
        self.here.until(
            lambda: all(len(each.answers) >= count for each, count in zip(self.submits, wanted, strict=True)),
            "both gateways answer",
            look_s=LOOK_S,
        )

    def kill_leaders_of_streams(self, names: list[str]) -> None:
        """Kill the server that leads each of these streams, and start it again once all is answered."""
        cluster = self.here.cluster
        for name in names:
            server = cluster.wait_for_leader(name)
            kind = "leader of LOG killed" if name == "LOG" else "leader of a stream killed"
            self._suffer(
                kind,
                name,
                server.kill,
                elected=lambda name=name: cluster.leader(name) is not None,
                mend=lambda server=server: self._back(server),
                writers=FOLLOWED,
            )

    def retire_servers(self) -> None:
        """Retire each server in turn, as for an upgrade of its machine, and start it again."""
        for number, server in enumerate(self.here.cluster.servers):
            self._suffer(
                "server retired",
                f"server {number + 1}",
                server.retire,
                mend=lambda server=server: self._back(server, retired=True),
                writers=FOLLOWED,
            )

    def end_writers(self, kind: str, number: signal.Signals) -> None:
        """End the leader of each writer; its standby takes over, and the process manager starts the next standby."""
        for writer in WRITERS:
            self.here.until(lambda writer=writer: self.here.holder(writer), f"{writer} has a leader")
            before = self.here.holder(writer)
            assert before is not None
            name, terms = before.name, self.here.terms(before.name)

            def elected(writer: str = writer, before: LeaseHolder = before) -> bool:
                found = self.here.holder(writer)
                # The same process may lead again, once it is started again.
                return found is not None and found.word != before.word

            def back(name: str = name, terms: int = terms) -> None:
                self.here.until(lambda: self.here.terms(name) > terms, f"{name} stands by")

            self._suffer(
                kind,
                f"{writer}, {name}",
                lambda name=name: self.here.signal(name, number),
                elected=elected,
                mend=back,
                writers=(writer,) if writer in FOLLOWED else (),
            )

    def kill_gateways(self) -> None:
        """Kill each gateway; clients with both addresses use the other one."""
        for number in (1, 2):
            name = f"gateway-{number}"
            self._suffer(
                "gateway killed", name, lambda name=name: self.here.signal(name, signal.SIGKILL), mend=lambda: None
            )

    def _back(self, server: NatsServer, *, retired: bool = False) -> None:
        if retired:
            self.here.until(lambda: not server.runs, "the retired server has ended", look_s=LOOK_S)
        server.kill()
        server.start()
        self.here.cluster.wait(self.here.cluster.healthy, "three healthy servers")

    def lines(self, told: Told) -> list[Line]:
        """The cost of each fault. The client of a killed gateway has no other: that counts which is answered."""
        found: list[Line] = []
        for fault in self.faults:
            gaps = [longest_gap(each.answers, fault) for each in self.submits]
            commits = [longest_gap(told.commits.get(writer, []), fault) for writer in fault.writers]
            found.append(Line(fault, max(commits, default=0.0), (min if fault.kind == "gateway killed" else max)(gaps)))
        return found

    def stop(self) -> None:
        """End the load."""
        for each in (*self.submits, self.person):
            each.stop()

    def told(self) -> Told:
        """Read the whole log, once every job that was acknowledged has ended."""
        jobs = {job for each in self.submits for job in each.jobs.values()} | set(self.person.jobs)
        deadline = time.monotonic() + ENDED_S
        while True:
            told = asyncio.run(_read(self.here.nats_url))
            if jobs <= set(told.ends) or time.monotonic() > deadline:
                return told
            time.sleep(1.0)

    def broken(self, told: Told) -> list[str]:
        """What must not be: an acknowledged job that is lost or double, an attempt that began twice, an error that a person saw."""
        answered = [job for each in self.submits for job in each.jobs.values()] + self.person.jobs
        found = [
            f"job {job} was acknowledged and is {told.submitted[job]} times in the log"
            for job in answered
            if told.submitted[job] != 1
        ]
        found += [f"job {job} ended {told.ends[job]} times" for job in answered if told.ends[job] != 1]
        found += [
            f"attempt {job}.{attempt} began {count} times" for (job, attempt), count in told.starts.items() if count > 1
        ]
        found += [f"two keys have job {job}" for job, count in Counter(answered).items() if count > 1]
        found += self.person.errors
        found += [f"the watch saw job {job} {count} times" for job, count in self.person.seen.items() if count != 1]
        verdict = verify_url(self.here.nats_url)
        return found if verdict.ok else [*found, f"audit verify: {verdict}"]


def longest_gap(times: list[float], fault: Fault) -> float:
    """The longest time without one of these moments, of the times that a fault may have to do with."""
    near = [each for each in times if fault.at < each < fault.until]
    ends = [fault.at, *near, *([] if near else [fault.until])]
    return max(later - earlier for earlier, later in pairwise(ends))


async def _read(nats_url: str) -> Told:
    told = Told(Counter(), Counter(), Counter(), {})
    bus = await connect(nats_url, name="hostile")
    try:
        async for stored in read_log(bus):
            commit = decode_commit(stored.payload)
            told.commits.setdefault(commit.writer, []).append(commit.at_ns / 1e9)
            for event in commit.events:
                match event:
                    case ev.JobSubmitted():
                        told.submitted[event.job] += 1
                    case ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
                        told.ends[event.job] += 1
                    case ev.RunStarted():
                        told.starts[event.job, event.attempt] += 1
                    case _:
                        pass
    finally:
        await bus.close()
    return told


def summary(lines: list[Line]) -> list[str]:
    """A line for each kind of fault: its tries, p50, worst, and its bar."""
    rows = [f"{'':<26}{'tries':>6}{'elected':>9}{'commit':>8}{'answer':>8}{'worst':>8}   bar (p50, p99)"]
    for kind in dict.fromkeys(line.fault.kind for line in lines):
        own = [line for line in lines if line.fault.kind == kind]
        elected = [line.fault.elected_s for line in own if line.fault.elected_s is not None]
        commits = [line.commit_s for line in own if line.fault.writers]
        middle = [
            f"{statistics.median(each):.2f}" if each else "-"
            for each in (elected, commits, [line.answer_s for line in own])
        ]
        costs = [line.cost_s for line in own if line.fault.writers or not kind.startswith("writer")]
        bar, verdict = BARS.get(kind), ""
        if bar is not None:
            verdict = f"{bar[0]:g}, {bar[1]:g} s: " + (
                "reached" if statistics.median(costs) <= bar[0] and max(costs) <= bar[1] else "not reached"
            )
        rows.append(
            f"{kind:<26}{len(own):>6}{middle[0]:>9}{middle[1]:>8}{middle[2]:>8}{max(costs, default=0.0):>8.2f}   {verdict}"
        )
    return rows


KINDS = ("streams", "servers", "kill", "stop", "gateways")


def play(here: Installation, rounds: int, kinds: list[str], streams: list[str]) -> int:
    """Make the faults and print what they cost. Return the exit code."""
    session = Session(here)
    try:
        for _ in range(rounds):
            if "streams" in kinds:
                session.kill_leaders_of_streams(streams)
            if "servers" in kinds:
                session.retire_servers()
            if "kill" in kinds:
                session.end_writers("writer killed", signal.SIGKILL)
            if "stop" in kinds:
                session.end_writers("writer stopped", signal.SIGTERM)
            if "gateways" in kinds:
                session.kill_gateways()
    finally:
        session.stop()
    told = session.told()
    lines = session.lines(told)
    print(f"\n{'':<10}{'fault':<27}{'of':<26}{'elected':>9}{'commit':>8}{'answer':>8}   seconds")
    for line in lines:
        fault = line.fault
        elected = "-" if fault.elected_s is None else f"{fault.elected_s:.2f}"
        commit = f"{line.commit_s:.2f}" if fault.writers else "-"
        moment = time.strftime("%H:%M:%S", time.localtime(fault.at))
        print(f"{moment:<10}{fault.kind:<27}{fault.what:<26}{elected:>9}{commit:>8}{line.answer_s:>8.2f}")
    print("", *summary(lines), sep="\n")
    hurt = [line.fault for line in lines if line.fault.kind in OF_SERVERS]
    deposed = [f"{fault.what}: {', '.join(fault.deposed)}" for fault in hurt if fault.deposed]
    print(f"\n{len(deposed)} of {len(hurt)} faults of servers changed a writer's leader", *deposed, sep="\n")
    broken = session.broken(told)
    answered = sum(len(each.jobs) for each in session.submits) + len(session.person.jobs)
    print(
        f"\n{answered:,} submits acknowledged, {len(session.faults)} faults, {len(broken)} broken promises",
        *broken[:20],
        sep="\n",
    )
    return 1 if broken else 0


def main() -> int:
    """Start the installation, and play."""
    options = _options()
    base = Path(tempfile.mkdtemp(prefix="ha-", dir=options.directory))
    streams = options.streams or [each.name for each in stream_setup.required_streams()]
    print(f"three servers and two of each service start in {base}", flush=True)
    with Installation(base) as here:
        where = "each service as on a machine of its own" if here.apart else "services share this machine's process ids"
        print(f"ready: {where}", flush=True)
        code = play(here, options.rounds, options.only or list(KINDS), streams)
    if not code and not options.keep:
        shutil.rmtree(base, ignore_errors=True)
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.ha", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how often the list is gone through")
    parser.add_argument("--only", nargs="+", choices=KINDS, help="these kinds of faults alone")
    parser.add_argument("--streams", nargs="+", help="the leaders of these streams alone (default: of each)")
    parser.add_argument("--directory", default=None, help="where the data directory is made")
    parser.add_argument("--keep", action="store_true", help="keep the data although nothing failed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
