"""A day of a small cluster, recorded on hollow nodes: `python -m bench.recorded_day EXPORT [--minutes 16]`.

A real stack (bus, queue, placer, gateway) with ten hollow nodes lives through a planned day in a few minutes: an hour of the
plan takes a twenty-fourth of that time, and so do run lengths and the queues' own times. In it two teams and a class submit,
cancel, hold and release jobs; a node is drained and comes back; two nodes are lost for an "hour". The log is exported at the
end; `fairlead audit export --load` makes a load file of it. tests/data/loads has one.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from bench.stack import Stack

NODES, LOST_NODES, GPUS = 8, 2, 4
SEED = 22
JOBS = 300
#: Planned hours at which a share of the jobs comes: work begins at nine, the class submits before midnight.
BUSY = {"research/vision": (9, 19), "research/speech": (8, 17), "teaching": (17, 24)}
USERS = {
    "research/vision": ("vera", "viktor", "vito"),
    "research/speech": ("sara", "sven"),
    "teaching": ("tia", "tom", "tara", "theo"),
}


class Deed(NamedTuple):
    """Something that is done at a planned hour."""

    hour: float
    do: Callable[[], None]


class Day:
    """The plan, and the stack on which it is carried out. `second_s`: real seconds of an hour of the plan."""

    def __init__(self, stack: Stack, hour_s: float) -> None:
        self._stack, self._hour_s = stack, hour_s
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{stack.port}", timeout=30)
        self._random = random.Random(SEED)
        self._jobs: dict[int, str] = {}
        self.refused = 0

    def live(self) -> None:
        """Live through it."""
        self._ask("POST", "/v1/queues:apply", json=self._queues())
        deeds = sorted(self._plan(), key=lambda each: each.hour)
        begin = time.monotonic()
        for deed in deeds:
            time.sleep(max(0.0, begin + deed.hour * self._hour_s - time.monotonic()))
            deed.do()
        time.sleep(max(0.0, begin + 24 * self._hour_s - time.monotonic()))

    def _queues(self) -> dict[str, Any]:
        patience = f"{max(1, round(self._hour_s / 6))}s"
        research = {"guaranteed": {"nvidia.com/gpu": 20}, "preemption": {"protect": patience}}
        return {
            "pools": {"default": {"patience": patience}},
            "queues": {
                "research": {**research, "queues": {"vision": {"weight": 2}, "speech": {"weight": 1}}},
                "teaching": {
                    "guaranteed": {"nvidia.com/gpu": 8},
                    "maximum": {"nvidia.com/gpu": 32},
                    "preemption": {"protect": patience},
                },
            },
        }

    def _plan(self) -> list[Deed]:
        deeds: list[Deed] = []
        queues = [*BUSY]
        for n in range(JOBS):
            queue = self._random.choices(queues, (5, 3, 4))[0]
            begin, end = BUSY[queue]
            hour = self._random.uniform(begin, end) if self._random.random() < 0.7 else self._random.uniform(0.1, 23.5)
            hours = min(6.0, self._random.lognormvariate(-0.3, 1.0))
            gpus = self._random.choices((1, 2, 4, 8), (50, 25, 20, 5))[0]
            deeds.append(Deed(hour, self._submit(n, queue, hours, gpus)))
            luck = self._random.random()
            if luck < 0.06:
                deeds.append(Deed(min(23.9, hour + self._random.uniform(0.1, 2)), self._verb(n, "cancel")))
            elif luck < 0.09:
                deeds.append(Deed(hour + 0.02, self._verb(n, "hold")))
                deeds.append(Deed(min(23.9, hour + self._random.uniform(0.5, 3)), self._verb(n, "release")))
        deeds += [
            Deed(10.0, lambda: self._node("h-3", "drain")),
            Deed(13.0, lambda: self._node("h-3", "uncordon")),
            Deed(15.0, lambda: self._signal(signal.SIGSTOP)),
            Deed(18.0, lambda: self._signal(signal.SIGCONT)),
            Deed(20.0, lambda: self._node("h-6", "drain")),
            Deed(22.0, lambda: self._node("h-6", "uncordon")),
        ]
        return deeds

    def _submit(self, n: int, queue: str, hours: float, gpus: int) -> Callable[[], None]:
        user = self._random.choice(USERS[queue])
        nodes = 2 if gpus > GPUS else 1
        seconds = round(hours * self._hour_s, 1)
        command = ["sh", "-c", f"sleep {seconds}; exit 1"] if self._random.random() < 0.08 else ["sleep", f"{seconds}"]
        words: dict[str, Any] = {
            "name": f"{queue.rpartition('/')[2]}-{n % 7}",
            "queue": queue,
            "command": command,
            "nodes": nodes,
            "resources": {"nvidia.com/gpu": gpus // nodes, "cpu": 1, "memory": "1Gi"},
        }
        if self._random.random() < 0.3:
            words["time"] = {"total": f"{max(2, round(seconds * self._random.uniform(0.8, 3)))}s"}

        def do() -> None:
            answer = self._ask("POST", "/v1/jobs", json=words, headers={"X-Fairlead-User": user})
            if "id" in answer:
                self._jobs[n] = str(answer["id"])

        return do

    def _verb(self, n: int, verb: str) -> Callable[[], None]:
        return lambda: self._about(n, verb)

    def _about(self, n: int, verb: str) -> None:
        if n in self._jobs:
            self._ask("POST", f"/v1/jobs/{self._jobs[n]}:{verb}", json={})

    def _node(self, node: str, verb: str) -> None:
        self._ask("POST", f"/v1/nodes/{node}:{verb}", json={"reason": "new driver"} if verb == "drain" else {})

    def _signal(self, number: int) -> None:
        os.killpg(self._stack.processes["lost"].pid, number)

    def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        answer = self._client.request(method, path, **more)
        if answer.status_code >= 400:
            self.refused += 1
            print(f"{method} {path}: {answer.status_code} {answer.text[:200]}", file=sys.stderr, flush=True)
            return {}
        return answer.json() if answer.content else {}


def hollow(stack: Stack, name: str, nodes: int, prefix: str) -> None:
    """Start hollow nodes as a process of their own."""
    sizes = ["--nodes", str(nodes), "--gpus", str(GPUS), "--nodes-per-rack", "0", "--prefix", prefix]
    stack.spawn(name, [sys.executable, "-m", "fairlead_agent.hollow", *sizes])


def main() -> None:
    """Record a day."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("export", type=Path)
    parser.add_argument("--minutes", type=float, default=16.0)
    args = parser.parse_args()
    with Stack() as stack:
        stack.control_plane(telemetry=False)
        hollow(stack, "hollow", NODES, "h")
        hollow(stack, "lost", LOST_NODES, "k")
        stack.wait_nodes(NODES + LOST_NODES)
        day = Day(stack, args.minutes * 60 / 24)
        day.live()
        print(f"lived; {day.refused} requests refused")
        subprocess.run(
            [sys.executable, "-m", "fairlead", "audit", "export", str(args.export), "--nats", stack.nats_url],
            check=True,
        )


if __name__ == "__main__":
    main()
