"""`python -m tests.system.partitions [--rounds 20] [--runtime process|docker] [--faults cut,killed,…]`

In each round a job runs on one of two nodes; that node is cut off, and the job must have ended there before it starts on the
other. Its program ignores TERM and writes down the time since boot ten times a second: what the files of the two nodes say is
what happened, whatever the log says. Prints a timeline of each round, from the log and from those files; exit code 1 if two
attempts of a job ever overlapped. Needs root, iproute2 and a nats-server; for containers, an engine.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fairlead_agent.files.guard_files import boottime_ns
from fairlead_bus.log import LogReader
from fairlead_bus.nats.adapter import connect
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from tests.kit import hosts
from tests.system.netcluster import FENCE_S, LEASE_S, NODES, NetCluster

BEATING = "trap '' TERM; while read up rest < /proc/uptime; do echo $up; sleep 0.1; done"
#: How long a network flaps: long enough to fence a node that hears nothing.
FLAPS = int(LEASE_S * 2)


class Life(NamedTuple):
    """One attempt, as its own output tells it: seconds since boot."""

    attempt: int
    node: str
    first_s: float
    last_s: float


# ---------------------------------------------------------------------------- faults, and what undoes them


def cut(cluster: NetCluster, node: str) -> None:
    """The cable is pulled."""
    cluster.hosts[node].cut()


def killed(cluster: NetCluster, node: str) -> None:
    """The agent is killed and the cable is pulled: only the guard is left."""
    cluster.signal(f"agent-{node}", signal.SIGKILL)
    cluster.hosts[node].cut()


def stopped(cluster: NetCluster, node: str) -> None:
    """The agent hangs; the network works."""
    cluster.signal(f"agent-{node}", signal.SIGSTOP)


def outward(cluster: NetCluster, node: str) -> None:
    """Nothing that the node sends arrives; it hears everything."""
    cluster.one_way(node, outward=True)


def inward(cluster: NetCluster, node: str) -> None:
    """The node hears nothing; what it sends arrives."""
    cluster.one_way(node, outward=False)


def flapping(cluster: NetCluster, node: str) -> None:
    """The cable is in and out once a second; then it stays out."""
    for _ in range(FLAPS):
        cluster.hosts[node].cut()
        time.sleep(0.5)
        cluster.hosts[node].mend()
        time.sleep(0.5)
    cluster.hosts[node].cut()


FAULTS: dict[str, Callable[[NetCluster, str], None]] = {
    each.__name__: each for each in (cut, killed, stopped, outward, inward, flapping)
}


def undo(cluster: NetCluster, node: str) -> None:
    """The node is whole again, its agent lives."""
    cluster.mend(node)
    agent = cluster.processes[f"agent-{node}"]
    if agent.poll() is None:
        agent.send_signal(signal.SIGCONT)
    else:
        cluster.start_agent(node)


# ---------------------------------------------------------------------------- one round


class Round(NamedTuple):
    """What was seen."""

    fault: str
    job: str
    struck_s: float
    lives: list[Life]

    @property
    def overlap_s(self) -> float:
        """Return how long two attempts ran at once; 0 or less: never."""
        pairs = zip(self.lives, self.lives[1:], strict=False)
        return max((before.last_s - after.first_s for before, after in pairs), default=0.0)


def play(cluster: NetCluster, fault: str) -> Round:
    """Start a job, strike where it runs, wait until it has moved, mend."""
    image = {"image": "fairlead-test:busybox"} if cluster.runtime == "docker" else {}
    spec = {
        "command": ["sh", "-c", BEATING],
        "resources": {"cpu": "100m", "memory": "64Mi"},
        "name": fault,
        "time": {"grace": "1s"},
        **image,
    }
    job = cluster.client.submit(spec).id
    cluster.until(lambda: bool(lives_of(cluster, job)), f"job {job} runs")
    (first,) = lives_of(cluster, job)
    struck_s = boottime_ns() / 1e9
    FAULTS[fault](cluster, first.node)
    cluster.until(lambda: len(lives_of(cluster, job)) > 1, f"job {job} has moved")
    time.sleep(1.0)  # whatever still lived would write
    undo(cluster, first.node)
    cluster.until(lambda: set(cluster.states().values()) == {"ready"}, "both nodes are back")
    held = lambda: {node.id: node.jobs for node in cluster.client.nodes().items}  # noqa: E731
    if lives_of(cluster, job)[-1].node != first.node:  # a flapping node may be given it again
        cluster.until(lambda: job not in held()[first.node], f"{first.node} has reported the end")
    cluster.client.cancel(job)
    cluster.until(lambda: not any(job in jobs for jobs in held().values()), f"job {job} has ended")
    return Round(fault, job, struck_s, lives_of(cluster, job))


def lives_of(cluster: NetCluster, job: str) -> list[Life]:
    """Every attempt that has written a line, on whichever node, in order."""
    found: list[Life] = []
    for node in NODES:
        for path in (cluster.data / node / f"agent-{node}" / "runs").glob(f"{job}.*.0/stdout"):
            times = [float(line) for line in path.read_text().splitlines() if line.count(".") == 1]
            if times:
                found.append(Life(int(path.parent.name.split(".")[1]), node, times[0], times[-1]))
    return sorted(found)


# ---------------------------------------------------------------------------- what it prints


async def moments(url: str, job: str, since_s: float) -> list[tuple[float, str]]:
    """(seconds since boot, what the log says) of one job and of nodes, from a moment on."""
    bus = await connect(url, name="partitions")
    offset_s = time.time() - boottime_ns() / 1e9
    found: list[tuple[float, str]] = []
    try:
        end, reader = (await bus.state(subjects.LOG)).last, LogReader(bus)
        while reader.chain.last < end:
            for folded in await asyncio.wait_for(reader.next(), 30):
                at_s = folded.commit.at_ns / 1e9 - offset_s
                found += [
                    (at_s, told) for event in folded.commit.events if at_s >= since_s and (told := _told(event, job))
                ]
    finally:
        await bus.close()
    return found


def _told(event: ev.Event, job: str) -> str:
    name = type(event).__name__
    match event:
        case ev.NodeLost() | ev.NodeReturned():
            return f"log    {name} {event.node}"
        case ev.RunEnded() if event.job == job:
            return f"log    {name} {job}.{event.attempt} {event.outcome} {event.message}".rstrip()
        case ev.JobPlaced() if event.job == job:
            return f"log    {name} {job}.{event.attempt} on {event.parts[0].node}"
        case ev.RunStarted() | ev.JobRequeued() if event.job == job:
            return f"log    {name} {job}.{event.attempt}"
        case _:
            return ""


def tell(cluster: NetCluster, number: int, seen: Round) -> None:
    """The round as a timeline: seconds since the fault."""
    sys.stdout.write(f"round {number}: {seen.fault} ({cluster.runtime}), job {seen.job}\n")
    lines = asyncio.run(moments(cluster.nats_url, seen.job, seen.struck_s - 0.5))
    lines.append((seen.struck_s, f"fault  {(FAULTS[seen.fault].__doc__ or '').strip()}"))
    for life in seen.lives:
        lines.append((life.first_s, f"node {life.node} {seen.job}.{life.attempt} writes its first line"))
        lines.append((life.last_s, f"node {life.node} {seen.job}.{life.attempt} has written its last line"))
    for at_s, told in sorted(lines):
        sys.stdout.write(f"  {at_s - seen.struck_s:+7.2f} s  {told}\n")
    gap = -seen.overlap_s
    sys.stdout.write(
        f"  {'no overlap' if gap >= 0 else 'OVERLAP'}: {abs(gap):.2f} s {'between' if gap >= 0 else 'together'}\n"
    )
    sys.stdout.flush()


def main() -> int:
    """Play the rounds; 1 if two attempts ever ran at once, 2 where this machine can play no hosts."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.partitions")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--runtime", choices=("process", "docker"), default="process")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which, in turn")
    asked = parser.parse_args()
    if unfit := hosts.unfit():
        sys.stderr.write(f"partitions: {unfit}\n")
        return 2
    if asked.runtime == "docker":
        from tests.agent.runtimes.docker.image import ensure_image

        ensure_image()
    faults = asked.faults.split(",")
    seen: list[Round] = []
    with tempfile.TemporaryDirectory() as directory, NetCluster(Path(directory), runtime=asked.runtime) as cluster:
        for number in range(asked.rounds):
            seen.append(play(cluster, faults[number % len(faults)]))
            tell(cluster, number + 1, seen[-1])
    overlaps = [each for each in seen if each.overlap_s > 0]
    ended = [each.lives[0].last_s - each.struck_s for each in seen if each.fault != "flapping"]
    closest = min(-each.overlap_s for each in seen)
    sys.stdout.write(
        f"{len(seen)} rounds, {len(overlaps)} with an overlap; silent for {FENCE_S:g} s a node stops, a lease lasts {LEASE_S:g} s; "
        f"the last line of the old was {max(ended, default=0):.1f} s after the fault at most, {closest:.1f} s before the new one at least\n"
    )
    return 1 if overlaps else 0


if __name__ == "__main__":
    sys.exit(main())
