"""Abuse over HTTP and by jobs: nothing may be answered by an error of the server, end a part, or stay behind.

503 with words is an answer; any other 5xx is a failure, and so is a part that was started again. Start at `abuse`.
"""

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from fairlead.errors import FairleadError
from tests.hostile import abusive_requests as requests
from tests.hostile.load import Load
from tests.hostile.outcome import Row, check_load, joined, row
from tests.hostile.stack import Stack
from tests.telemetry.sql.attacks import ATTACKS

#: So that a crowd is refused, and slow clients are closed, within seconds.
BOUNDS = {
    "FAIRLEAD_HTTP_CONNECTIONS": "300",
    "FAIRLEAD_HTTP_REQUEST_S": "3",
    "FAIRLEAD_HTTP_REFUSALS": "0",
    "FAIRLEAD_OUTPUT_MIB": "64",
}
CROWD = 450
CLOSED_S = 60.0
RACERS = 40
UNREAD_STREAMS = 150
DAEMONS = 200
JOB_S = 120.0
#: Output files of all nodes together, once the jobs that printed them are over: what the setting allows, and a newest run each.
KEPT_BYTES = (3 * 64 + 3 * 200) * 2**20
GROWTH_MIB_MAX = 400
SMALL = {"resources": {"nvidia.com/gpu": 0, "cpu": "100m", "memory": "64Mi"}}
#: In the environment or the arguments of what hostile jobs leave behind.
MARK = "31415.9"


def abuse(directory: Path, tries: int, seed: int) -> list[Row]:
    """Run the lists `tries` times, each in another order, with a load of small jobs."""
    stack = Stack(directory / "abuse", environment=BOUNDS)
    rows: list[Row] = []
    try:
        stack.up()
        before, load = stack.pids(), Load(stack, directory / "abuse-jobs", threads=1)
        load.start()
        for number in range(tries):
            rng = random.Random(f"{seed} {number}")
            rows += [
                _raw(stack, rng),
                _job_files(stack, rng),
                _reads(stack, rng),
                _changes(stack, rng),
                _race(stack, number),
            ]
            rows += [_sql(stack, directory, rng), _slow(stack), _crowd(stack), _streams(stack), _jobs(stack)]
        load.stop()
        again = [f"{name} was started again" for name, pid in before.items() if stack.pids().get(name) != pid]
        rows.append(row("abuse", "parts that ended meanwhile", len(before), again))
        return [*joined(rows), *check_load("abuse", stack, load)]
    finally:
        stack.end()


def _address(stack: Stack) -> tuple[str, int]:
    parts = urlsplit(stack.url)
    return parts.hostname or "127.0.0.1", parts.port or 0


def _exchange(stack: Stack, sent: bytes, within_s: float = 20.0) -> tuple[int, bytes]:
    """Send bytes on a connection of their own; return the answer's status (0: closed without one) and all of it."""
    found = b""
    try:
        with socket.create_connection(_address(stack), timeout=within_s) as connection:
            connection.sendall(sent)
            while piece := connection.recv(65536):
                found += piece
    except OSError:  # refused requests are answered before all of them is read
        pass
    head = found[:12].split()
    return (int(head[1]) if len(head) > 1 and head[1].isdigit() else 0), found


def _is_error(status: int, body: bytes) -> bool:
    """True for an error of the server: any 5xx but a 503 that names its reason."""
    return status >= 500 and not (status == 503 and b'"detail"' in body)


def _raw(stack: Stack, rng: random.Random) -> Row:
    broken: list[str] = []
    for each in rng.sample(requests.RAW, len(requests.RAW)):
        status, body = _exchange(stack, each.sent)
        if status not in each.expected or _is_error(status, body):
            broken.append(f"{each.what}: answered {status}, expected {' or '.join(map(str, each.expected))}")
    return row("abuse", "raw HTTP: Host, targets, origins, codings, sizes, garbage", len(requests.RAW), broken)


def _job_files(stack: Stack, rng: random.Random) -> Row:
    broken: list[str] = []
    with httpx.Client(base_url=stack.url, timeout=60, headers={"Content-Type": "application/json"}) as client:
        for body in rng.sample(requests.REFUSED_JOBS, len(requests.REFUSED_JOBS)):
            answer = client.post("/v1/jobs", content=body)
            if not 400 <= answer.status_code < 500 or "\n" in answer.json().get("detail", ""):
                broken.append(f"{body[:80]!r}: answered {answer.status_code}")
    return row("abuse", "job files with bad numbers, names, paths, depth and sizes", len(requests.REFUSED_JOBS), broken)


def _reads(stack: Stack, rng: random.Random) -> Row:
    targets, broken = requests.reads(), list[str]()
    rng.shuffle(targets)
    with httpx.Client(base_url=stack.url, timeout=60) as client:
        for target in targets:
            with client.stream("GET", httpx.URL(stack.url).copy_with(raw_path=target.encode())) as answer:
                body = b"" if answer.status_code < 500 else answer.read()
                if _is_error(answer.status_code, body):
                    broken.append(f"GET {target[:80]}: answered {answer.status_code}")
    return row("abuse", "every GET with odd values in its path and parameters", len(targets), broken)


def _changes(stack: Stack, rng: random.Random) -> Row:
    todo, broken = requests.changes(), list[str]()
    rng.shuffle(todo)
    with httpx.Client(timeout=60, headers={"Content-Type": "application/json"}) as client:
        for method, target, body in todo:
            answer = client.request(method, httpx.URL(stack.url).copy_with(raw_path=target.encode()), content=body)
            if _is_error(answer.status_code, answer.content):
                broken.append(f"{method} {target[:80]} {body[:30]!r}: answered {answer.status_code}")
            elif answer.status_code < 300 and method != "DELETE" and body not in (b"", b"{}"):
                broken.append(f"{method} {target[:80]} {body[:30]!r}: accepted")
    return row("abuse", "every POST, PUT and DELETE with bodies that mean nothing", len(todo), broken)


def _race(stack: Stack, number: int) -> Row:
    """Submit the same job under one key from many threads at once."""
    ids: set[str] = set()
    errors: list[str] = []
    gate = threading.Barrier(RACERS)

    def one() -> None:
        gate.wait(30)
        try:
            with stack.client() as client:
                result = client.submit({"command": ["true"], **SMALL}, key=f"race-{number}")
                ids.add(result.id or result.command or "")
        except FairleadError as error:
            errors.append(str(error)[:100])

    threads = [threading.Thread(target=one) for _ in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    broken = [*errors, *([f"{len(ids)} jobs under one key: {sorted(ids)}"] if len(ids) != 1 else [])]
    return row("abuse", "racing submits under one idempotency key", RACERS, broken)


def _sql(stack: Stack, directory: Path, rng: random.Random) -> Row:
    """Send the attack table over HTTP; nothing may be answered with rows, and no file may appear."""
    secret = directory / "sql"
    secret.mkdir(exist_ok=True)
    (secret / "secret.csv").write_text("a\nhunter2\n")
    broken: list[str] = []
    with httpx.Client(base_url=stack.url, timeout=90) as client:
        for attack in rng.sample(ATTACKS, len(ATTACKS)):
            answer = client.post("/v1/sql", json={"query": attack.replace("{dir}", str(secret))})
            if not 400 <= answer.status_code < 500 or "hunter2" in answer.text:
                broken.append(f"{attack[:60]}: answered {answer.status_code}")
        if client.post("/v1/sql", json={"query": "SELECT count(*) FROM events"}).status_code != 200:
            broken.append("afterwards a plain query is not answered")
    broken += [f"there is a file {path.name}" for path in secret.iterdir() if path.name != "secret.csv"]
    return row("abuse", "SQL: files, network, settings, writes, catalogs", len(ATTACKS), broken)


@contextmanager
def _connections(stack: Stack, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    with ExitStack() as held:
        made: list[socket.socket] = []
        for _ in range(count):
            connection = held.enter_context(socket.create_connection(_address(stack), timeout=20))
            if sent:
                connection.sendall(sent)
            made.append(connection)
        yield made


def _slow(stack: Stack) -> Row:
    """Send half a head, and half a body, and wait to be closed."""
    halves = (b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n", requests.post(b"x" * 500)[:-400])
    open_ones: list[str] = []
    for half in halves:
        with _connections(stack, 100, half) as made:
            deadline = time.monotonic() + CLOSED_S
            for connection in made:
                connection.settimeout(max(0.1, deadline - time.monotonic()))
                try:
                    while connection.recv(65536):
                        pass
                except TimeoutError:
                    open_ones.append("a slow connection stays open")
                except OSError:
                    continue
    return row("abuse", "connections with half a head or half a body", 200, open_ones)


def _crowd(stack: Stack) -> Row:
    """Hold more idle connections than the bound; others must connect again although none is closed."""
    with _connections(stack, CROWD, b""):
        stack.until(lambda: httpx.get(f"{stack.url}/healthz", timeout=5).status_code == 200, "others get in", CLOSED_S)
    return row("abuse", f"idle connections, of which {BOUNDS['FAIRLEAD_HTTP_CONNECTIONS']} are allowed", CROWD, [])


def _streams(stack: Stack) -> Row:
    """Follow events on many connections without reading, while jobs run; the gateway's memory stays bounded."""
    follow = b"GET /v1/events?follow=true&from=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    before = _resident_mib(stack, "gateway")
    broken: list[str] = []
    with _connections(stack, UNREAD_STREAMS, follow), stack.client() as client:
        answered = client.submit_many([{"command": ["true"], **SMALL}] * 50, key=f"streams-{time.monotonic_ns()}")
        client.wait([each.id for each in answered if each.id], timeout_s=JOB_S)
        grown = _resident_mib(stack, "gateway") - before
    if grown > GROWTH_MIB_MAX:
        broken.append(f"the gateway has grown by {grown} MiB")
    return row("abuse", "event streams that no client reads", UNREAD_STREAMS, broken)


def _resident_mib(stack: Stack, part: str) -> int:
    text = Path(f"/proc/{stack.pids()[part]}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) // 1024


def _jobs(stack: Stack) -> Row:
    """Run jobs that misbehave; each must end, leave no process, and the node must take the next one."""
    scripts = {
        "leaves daemons": f"for i in $(seq {DAEMONS}); do setsid sleep {MARK} & done; exit 0",
        "leaves daemons without its environment": f"for i in $(seq 20); do env -i setsid sleep {MARK} & done; exit 0",
        "forks twice": f"(setsid sh -c 'setsid sleep {MARK} & sleep {MARK} &' &) ; exit 0",
        "removes its directory": 'cd "$PWD" && rm -rf -- "$PWD"/* "$PWD"; exit 0',
        "closes its output": "exec >&- 2>&- <&-; sleep 0.3; exit 0",
        "prints 200 MB": "head -c 200000000 /dev/zero; exit 0",
        "prints 50 MB of lines": "yes abcdefgh | head -c 50000000; exit 0",
        "prints one endless line": "head -c 30000000 /dev/zero | tr '\\0' x; exit 0",
        "prints NUL, escapes and bad UTF-8": "printf '\\000\\033]0;owned\\007\\377\\376\\n'; exit 0",
        "ignores TERM until its time is over": "trap '' TERM; while :; do sleep 0.2; done",
    }
    broken: list[str] = []
    with stack.client() as client:
        ids = {client.submit(_job_of(what, script)).id or "": what for what, script in scripts.items()}
        for job, what in ids.items():
            try:
                (ended,) = client.wait([job], timeout_s=JOB_S)
            except FairleadError as error:
                broken.append(f"{what}: {error}")
                continue
            if ended.state != ("failed" if "TERM" in what else "succeeded"):
                broken.append(f"{what}: {ended.state}: {ended.message if hasattr(ended, 'message') else ''}")
        left = [pid for pid, words in stack.everything().items() if MARK in words] or _marked()
        broken += [f"{len(left)} processes are left"] if left else []
        kept = sum(path.stat().st_size for path in stack.data.glob("agent-*/runs/**/*") if path.is_file())
        broken += [f"{kept} bytes of output are kept"] if kept > KEPT_BYTES else []
        last = client.submit({"command": ["true"], **SMALL})
        client.wait([last.id or ""], timeout_s=JOB_S)
    return row("abuse", "jobs: daemons, output without end, no directory, no TERM", len(scripts), broken)


def _job_of(what: str, script: str) -> dict[str, Any]:
    time_of = {"time": {"total": "3s", "grace": "1s"}} if "TERM" in what else {}
    return {"command": ["/bin/sh", "-c", script], **SMALL, **time_of}


def _marked() -> list[int]:
    """Process ids of what hostile jobs left behind, also those that have shed their environment."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_bytes() == f"sleep\0{MARK}\0".encode():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
