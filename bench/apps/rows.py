"""Rows about the app proxy, beside one nginx worker, configurable-http-proxy and a bare splice, all in front of the same node's end and app.

Small requests, 1 GiB, echo over 1,000 live WebSockets, 5,000 idle ones, and readers that stall. The proxies are measured in turn, several rounds of
each, and a row is of the medians: on a machine with other work all lose alike. The app's gateway is played; see bench/apps/ends.py.
"""

import asyncio
import statistics
from collections.abc import Callable

from bench.apps import loads
from bench.apps.road import CHP, NGINX, NONE, OURS, SPLICE, Missing, Proxy, Road
from bench.table import Row, percentile

CONNECTIONS, SMALL_S, SMALL_ROUNDS, LARGE_ROUNDS = 32, 1.5, 5, 3
LIVE, FRAMES_PER_S, ECHO_S, ECHO_ROUNDS = 1000, 1000, 3.0, 3
IDLE, IDLE_S, STALLED = 5000, 10.0, 16
SMALL_SHARE, LARGE_SHARE, LARGE_GB_PER_S = 0.3, 0.5, 1.0
ECHO_P50_US, ECHO_P99_US = 150, 1500
IDLE_KIB, IDLE_PERCENT, STALLED_KIB, BESIDE_STALLED = 24, 2.0, 256, 0.8


async def rows() -> list[Row]:
    """Start the road and measure; a row that says why there is none, where a program is missing."""
    try:
        with Road() as road:
            proxies = road.proxies
            return [await each(proxies) for each in (_small, _large, _echo, _idle, _stalled)]
    except Missing as missing:
        print(f"  skipped: apps: {missing}")
        return []


async def _small(proxies: dict[str, Proxy]) -> Row:
    found: dict[str, list[loads.Rate]] = {name: [] for name in proxies}
    for _ in range(SMALL_ROUNDS):
        for name, proxy in proxies.items():
            found[name].append(await loads.small(proxy, CONNECTIONS, SMALL_S))
    rate = {name: statistics.median(each.per_s for each in some) for name, some in found.items()}
    cpu = {name: statistics.median(each.cpu_us for each in some) for name, some in found.items()}
    share = rate[OURS] / rate[NGINX]
    return Row(
        f"app proxy: GETs of 1 KiB, {CONNECTIONS} connections",
        f"{rate[OURS]:,.0f}/s, {share:.0%} of nginx; CPU {cpu[OURS]:.0f} µs",
        f"≥ {SMALL_SHARE:.0%} of nginx, more than {CHP}",
        share >= SMALL_SHARE and rate[OURS] > rate[CHP],
        _others(proxies, lambda name: f"{rate[name]:,.0f}/s" + (f", {cpu[name]:.0f} µs" if name != NONE else "")),
    )


async def _large(proxies: dict[str, Proxy]) -> Row:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in proxies}
    for _ in range(LARGE_ROUNDS):
        for name, proxy in proxies.items():
            found[name].append(await asyncio.to_thread(loads.large, proxy))
    rate = {name: statistics.median(each for each, _ in some) for name, some in found.items()}
    cpu = {name: statistics.median(each for _, each in some) for name, some in found.items()}
    share = rate[OURS] / rate[NGINX]
    return Row(
        "app proxy: 1 GiB to one client",
        f"{rate[OURS]:.2f} GB/s, {share:.0%} of nginx; CPU {cpu[OURS]:.2f} s",
        f"≥ {LARGE_SHARE:.0%} of nginx or ≥ {LARGE_GB_PER_S:g} GB/s, more than {CHP}",
        (share >= LARGE_SHARE or rate[OURS] >= LARGE_GB_PER_S) and rate[OURS] > rate[CHP],
        _others(proxies, lambda name: f"{rate[name]:.2f} GB/s" + (f", {cpu[name]:.2f} s" if name != NONE else "")),
    )


async def _echo(proxies: dict[str, Proxy]) -> Row:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in proxies}
    for _ in range(ECHO_ROUNDS):
        for name, proxy in proxies.items():
            sockets = await loads.open_sockets(proxy, LIVE)
            took = await loads.echo(sockets, FRAMES_PER_S, ECHO_S)
            await loads.close_sockets(sockets)
            found[name].append((percentile(took, 0.5) * 1e6, percentile(took, 0.99) * 1e6))
    p50 = {name: statistics.median(each for each, _ in some) for name, some in found.items()}
    p99 = {name: statistics.median(each for _, each in some) for name, some in found.items()}
    more, more_p99 = p50[OURS] - p50[NONE], p99[OURS] - p99[NONE]
    return Row(
        f"app proxy: echo of 64 bytes, {FRAMES_PER_S:,} a second over {LIVE:,} live WebSockets, beyond no proxy",
        f"p50 {more:+.0f} µs, p99 {more_p99:+.0f} µs",
        f"p50 ≤ {ECHO_P50_US} µs, p99 ≤ {ECHO_P99_US:,} µs; p50 below {CHP}",
        more <= ECHO_P50_US and more_p99 <= ECHO_P99_US and p50[OURS] < p50[CHP],
        f"itself p50 {p50[OURS]:.0f}, p99 {p99[OURS]:.0f} µs; "
        + _others(proxies, lambda name: f"p50 {p50[name]:.0f}, p99 {p99[name]:.0f} µs"),
    )


async def _idle(proxies: dict[str, Proxy]) -> Row:
    kib, percent = dict[str, float](), dict[str, float]()
    for name, proxy in proxies.items():
        if name == NONE:
            continue
        before = proxy.pss_kib()
        sockets = await loads.open_sockets(proxy, IDLE)
        kib[name] = (proxy.pss_kib() - before) / IDLE
        cpu = proxy.cpu_s()
        await asyncio.sleep(IDLE_S)
        percent[name] = (proxy.cpu_s() - cpu) / IDLE_S * 100
        await loads.close_sockets(sockets)
    return Row(
        f"app proxy: {IDLE:,} idle WebSockets",
        f"{kib[OURS]:.1f} KiB each, {percent[OURS]:.1f} % of a core",
        f"≤ {IDLE_KIB} KiB each, ≤ {IDLE_PERCENT:g} %; less memory than {CHP}",
        kib[OURS] <= IDLE_KIB and percent[OURS] <= IDLE_PERCENT and kib[OURS] < kib[CHP],
        _others(proxies, lambda name: f"{kib[name]:.1f} KiB, {percent[name]:.1f} %" if name in kib else ""),
    )


async def _stalled(proxies: dict[str, Proxy]) -> Row:
    kib, share = dict[str, float](), dict[str, float]()
    for name, proxy in proxies.items():
        if name == NONE:
            continue
        alone: list[float] = []
        beside: list[float] = []
        held: list[float] = []
        for _ in range(SMALL_ROUNDS):
            alone.append((await loads.small(proxy, CONNECTIONS, SMALL_S)).per_s)
            before = proxy.pss_kib()
            with loads.Stalled(proxy, STALLED):
                held.append((proxy.pss_kib() - before) / STALLED)
                beside.append((await loads.small(proxy, CONNECTIONS, SMALL_S)).per_s)
        kib[name], share[name] = max(held), statistics.median(beside) / statistics.median(alone)
    return Row(
        f"app proxy: {STALLED} clients that take nothing of 1 GiB each: held for one; GETs of others meanwhile",
        f"{kib[OURS]:.0f} KiB; {share[OURS]:.0%} of the rate without them",
        f"≤ {STALLED_KIB} KiB; ≥ {BESIDE_STALLED:.0%}; less memory than {CHP}",
        kib[OURS] <= STALLED_KIB and share[OURS] >= BESIDE_STALLED and kib[OURS] < kib[CHP],
        _others(proxies, lambda name: f"{kib[name]:.0f} KiB, {share[name]:.0%}" if name in kib else ""),
    )


def _others(proxies: dict[str, Proxy], words: Callable[[str], str]) -> str:
    names = {NGINX: "nginx, one worker", CHP: CHP, SPLICE: "bare splice", NONE: NONE}
    return "; ".join(f"{called}: {words(name)}" for name, called in names.items() if name in proxies and words(name))
