"""Kills and holds under load: kill -9 of any parts at once, SIGSTOP of any part for a while.

Nothing is mended by hand: the product's own supervisor starts again what died, and what was held continues.
"""

import random
import signal
import time
from pathlib import Path

from tests.hostile.load import Load, read_marks
from tests.hostile.outcome import Row, check_load, row
from tests.hostile.stack import SERVICES, Stack, send

#: Jobs that must have begun between two faults: what is killed is at work.
BEGUN_A_ROUND = 4
#: What starts jobs for the agents looks this often whether anybody still needs it.
LEFT_S = 20.0
#: Seconds for which each part is held, shorter and longer than its leases and deadlines.
HOLDS = (
    ("queue", 12),
    ("placer", 15),
    ("nats", 12),
    ("gateway", 10),
    ("access", 12),
    ("telemetry", 15),
    ("spawner", 15),
    ("agent", 20),
)


def kills(directory: Path, rounds: int, seed: int) -> list[Row]:
    """Kill 1 to 5 parts at once, now and then all of them, `rounds` times."""
    rng, stack = random.Random(seed), Stack(directory / "kills")
    killed = 0
    try:
        stack.up()
        load = Load(stack, directory / "kills-jobs")
        load.start()
        for _ in range(rounds):
            _wait_begun(stack, load)
            parts = [*SERVICES, "guard", *stack.agents()]
            chosen = parts if rng.random() < 0.1 else rng.sample(parts, rng.randint(1, 5))
            killed += sum(stack.signal(part, signal.SIGKILL) for part in chosen)
            if rng.random() < 0.2:
                for pid in stack.spawners()[:1]:
                    killed += send(pid, signal.SIGKILL)
            time.sleep(rng.random() * 2)
        load.stop()
        stack.wait_ready()
        rows = check_load("kills", stack, load)
        stack.down()
        left = _left(stack)
        what = f"kill -9 of {killed} parts in {rounds} rounds, seed {seed}; processes left after `down --jobs`"
        return [row("kills", what, rounds, [f"left: {words[:80]}" for words in left]), *rows]
    finally:
        stack.end()


def holds(directory: Path, rounds: int, seed: int) -> list[Row]:
    """Hold each part with SIGSTOP under load and let it continue, `rounds` of the list."""
    stack, rng = Stack(directory / "holds"), random.Random(seed)
    chosen = [HOLDS[number % len(HOLDS)] for number in range(rounds)]
    try:
        stack.up()
        load = Load(stack, directory / "holds-jobs")
        load.start()
        for part, seconds in chosen:
            _wait_begun(stack, load)
            pids = _pids(stack, part, rng)
            for pid in pids:
                send(pid, signal.SIGSTOP)
            time.sleep(seconds)
            for pid in pids:
                send(pid, signal.SIGCONT)
        load.stop()
        stack.wait_ready()
        what = ", ".join(f"{part} {seconds} s" for part, seconds in dict.fromkeys(chosen))
        rows = check_load("holds", stack, load)
        return [row("holds", f"SIGSTOP, then CONT: {what}", rounds, []), *rows]
    finally:
        stack.end()


def _left(stack: Stack) -> list[str]:
    """Wait for the processes of a stack that was ended to go; return the command lines of those that stay."""
    deadline = time.monotonic() + LEFT_S
    while (found := stack.everything()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return list(found.values())


def _pids(stack: Stack, part: str, rng: random.Random) -> list[int]:
    if part == "spawner":
        return stack.spawners()[:1]
    name = rng.choice(stack.agents()) if part == "agent" else part
    return [pid for name_, pid in stack.pids().items() if name_ == name]


def _wait_begun(stack: Stack, load: Load) -> None:
    before = len(read_marks(load.directory).starts)
    stack.until(
        lambda: len(read_marks(load.directory).starts) >= before + BEGUN_A_ROUND, "jobs begin between two faults", 180.0
    )
