"""The past of a long log: answers about random moments, cold, through a gateway and the process for the past; what keyframes cost.

`python -m bench past`. With `--sweep` every route is compared, byte for byte, with a gateway that stands at the moment, over many logs of
the simulator: `python -m bench past --sweep [SEEDS] [MOMENTS]`.
"""

import asyncio
import random
import sys
import time

import httpx

from bench import lives
from bench.stack import Stack
from bench.table import Row, percentile
from fairlead_bus.nats.adapter import NatsBus
from fairlead_bus.port import BusError
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import ALIVE, decode_alive

MILLION = 1_000_000
#: Routes that are asked in turn; {job} stands for a job that was there.
ROUTES = (
    "/v1/jobs",
    "/v1/jobs?state=succeeded&limit=1000",
    "/v1/jobs/{job}",
    "/v1/nodes",
    "/v1/nodes/n17",
    "/v1/queues",
    "/v1/queues/default",
    "/v1/pools",
    "/v1/cluster",
    "/v1/map",
    "/v1/idle",
    "/v1/rollouts",
    "/v1/maintenance",
    "/v1/breaker",
    "/v1/access",
    "/v1/groups",
    "/v1/jobs?user=bench&limit=1000",
    "/v1/jobs?name=tr*",
    "/v1/map?pool=default",
    "/v1/nodes?limit=10",
)
#: Moments at which each route is asked.
MOMENTS = 3
#: Commits of the nodes and the queue before the first job.
OPENING = lives.NODES + 1
#: Commits of a batch of jobs' lives.
STEPS = 6
BASE_S, NEXT_S = 2.0, 0.1
CATCH_UP_S = 900.0


async def rows(events: int, per_commit: int) -> list[Row]:
    """Questions about random moments and about the next ones, and the cost of keyframes, over a log of so many events."""
    with Stack() as stack:
        bus = await stack.bus()
        maker = lives.LogMaker(bus)
        await maker.append(lives.opening())
        await maker.append(lives.lives(1, events // STEPS, per_commit))
        raw = (await bus.state(subjects.LOG)).bytes
        stack.spawn("past", [sys.executable, "-m", "fairlead_replay.past"])
        began = time.perf_counter()
        await _reached(bus, maker.sequence)
        took = time.perf_counter() - began
        cpu_s = stack.cpu_s("past")
        kept = sum(path.stat().st_size for path in (stack.data / "past").rglob("*.keyframe"))
        stack.service("gateway")
        await _gateway_reached(stack, maker.sequence)
        cold, following = _ask(stack, maker, per_commit)
        await bus.close()
    what = f"log of {maker.events:,} events, {per_commit} per commit"
    share = cpu_s / (maker.events / 1000)
    return [
        Row(
            f"any of {len(ROUTES)} routes at a random past moment, cold, {what}",
            f"p50 {percentile(cold, 0.5):.2f} s, p95 {percentile(cold, 0.95):.2f} s of {len(cold)}",
            f"p95 ≤ {BASE_S:g} s",
            percentile(cold, 0.95) <= BASE_S,
            f"the slowest {max(cold):.2f} s",
        ),
        Row(
            f"the same routes 1,000 events later, {what}",
            f"p50 {percentile(following, 0.5) * 1000:.0f} ms, p95 {percentile(following, 0.95) * 1000:.0f} ms",
            f"p95 ≤ {NEXT_S:g} s",
            percentile(following, 0.95) <= NEXT_S,
            f"the slowest {max(following) * 1000:.0f} ms",
        ),
        Row(
            f"keyframes of the views, {what}",
            f"{kept / 2**20:.1f} MiB, {100 * kept / raw:.1f} % of the log; {cpu_s:.1f} s of CPU with the fold",
            "≤ 10 % of the log; ≤ 5 % of a core at 1,000 events/s",
            kept <= raw / 10 and share <= 0.05,
            f"{100 * share:.1f} % of a core at 1,000 events/s; folded in {took:.1f} s",
        ),
    ]


async def _reached(bus: NatsBus, sequence: int) -> None:
    """Wait until the process for the past has folded so far."""
    deadline = time.monotonic() + CATCH_UP_S
    while time.monotonic() < deadline:
        try:
            answer = await bus.request(subjects.rpc("past", ALIVE), b"", timeout_s=5)
            if decode_alive(answer).sequence >= sequence:
                return
        except BusError:
            pass  # not there yet
        await asyncio.sleep(0.2)
    raise RuntimeError("the process for the past does not come to the log's end")


async def _gateway_reached(stack: Stack, sequence: int) -> None:
    deadline = time.monotonic() + CATCH_UP_S
    while time.monotonic() < deadline:
        try:
            if stack.get("/healthz")["sequence"] == sequence:
                return
        except httpx.HTTPError:
            pass  # not there yet
        await asyncio.sleep(0.2)
    raise RuntimeError("the gateway does not come to the log's end")


def _ask(stack: Stack, maker: lives.LogMaker, per_commit: int) -> tuple[list[float], list[float]]:
    """Return the seconds of cold answers, and of those 1,000 events later."""
    chance = random.Random(7)
    cold: list[float] = []
    following: list[float] = []
    with httpx.Client(base_url=f"http://127.0.0.1:{stack.port}", timeout=60) as client:
        _timed(
            client, "/v1/breaker", OPENING + 1, per_commit
        )  # the process makes its application at the first question
        for route in ROUTES * MOMENTS:
            sequence = chance.randint(
                OPENING + 2 * lives.KEPT // per_commit * STEPS, maker.sequence - 2000 // per_commit
            )
            cold.append(_timed(client, route, sequence, per_commit))
            following.append(_timed(client, route, sequence + 1000 // per_commit, per_commit))
    return cold, following


def _timed(client: httpx.Client, route: str, sequence: int, per_commit: int) -> float:
    job = max(1, (sequence - OPENING) // STEPS * per_commit * 99 // 100)
    path = route.replace("{job}", str(job))
    began = time.perf_counter()
    answer = client.get(f"{path}{'&' if '?' in path else '?'}at={sequence}")
    took = time.perf_counter() - began
    assert answer.status_code == 200, (path, sequence, answer.text)
    assert answer.headers["x-fairlead-at"].startswith(f"{sequence} "), path
    return took
