"""Cost of storing an event: CPU and wall time per event, for few and many events per commit.

    python -m bench.warehouse [--events 300000]

The baseline, in the same run, decodes each event in Python and inserts columns; both end with the
same table. One JSON line per row. Events are made up (the life of short one-GPU jobs).
"""

import argparse
import itertools
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import duckdb
import msgspec

from fairlead_bus.log import Chain
from fairlead_bus.port import Stored
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit, commit_hash, decode_envelope, encode_commit
from fairlead_schemas.wire.resources import Request
from fairlead_telemetry.ingest import FLUSH_BYTES
from fairlead_telemetry.samples.intake import SampleIntake
from fairlead_telemetry.schema import EVENTS
from fairlead_telemetry.warehouse.warehouse import CommitBytes, Cursor, Warehouse

#: What the service takes into one transaction when it is behind.
BYTES_PER_TRANSACTION = FLUSH_BYTES
USERS = 200


def life(job: int) -> Iterator[ev.Event]:
    """The six events of a short job. (All under one writer: the cost does not depend on it.)"""
    name, cause = str(job), f"cmd:{job:032x}"
    spec = msgspec.Raw(
        b'{"command":["true"],"name":"train","queue":"research/vision","resources":{"cpu":"4","nvidia.com/gpu":1}}'
    )
    request = Request(gpu_milli=1000, cpu_milli=4000, memory_mib=1024)
    part = ev.Part(node=f"n{job % 500}", gpus=(f"GPU-{job:032x}",), cpu_milli=4000, memory_mib=1024)
    yield ev.JobSubmitted(
        cause=cause, job=name, name="train", queue="research/vision", user=f"u{job % USERS}", request=request, spec=spec
    )
    yield ev.JobOffered(cause=cause, job=name, attempt=1, rank=job)
    yield ev.JobPlaced(cause=cause, job=name, attempt=1, parts=(part,), score={"fit": job % 100})
    yield ev.RunStarted(cause=cause, job=name, attempt=1)
    yield ev.RunEnded(cause=cause, job=name, attempt=1, outcome="exited", exit_code=0, released=(part.node,))
    yield ev.JobSucceeded(cause=cause, job=name, attempt=1)


def log_of(events: int, per_commit: int) -> list[bytes]:
    """Commits with a whole chain."""
    return list(itertools.islice(commits(per_commit), events // per_commit))


def commits(per_commit: int) -> Iterator[bytes]:
    """Short lives without end, as commits with a whole chain."""
    source, prev = (event for job in itertools.count(1) for event in life(job)), GENESIS
    for n in itertools.count(1):
        body = list(itertools.islice(source, per_commit))
        commit = Commit(
            v=VERSION, writer="queue", n=n, basis=n - 1, at_ns=10**18 + n * 10**6, cursors={}, prev=prev, events=body
        )
        payload = encode_commit(commit)
        prev = commit_hash(payload)
        yield payload


def batches(payloads: Iterable[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield what the service would store in one transaction while it catches up."""
    batch: list[tuple[int, bytes]] = []
    size = 0
    for sequence, payload in enumerate(payloads, 1):
        batch.append((sequence, payload))
        size += len(payload)
        if size > BYTES_PER_TRANSACTION:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def stored(directory: Path, payloads: list[bytes]) -> int:
    """Ours: chain check, then the commits' bytes to DuckDB."""
    warehouse = Warehouse(directory)
    fill(warehouse, payloads)
    count = warehouse.rows("SELECT count(*) FROM events")[0][0]
    warehouse.close()
    return count


def fill(warehouse: Warehouse, payloads: Iterable[bytes]) -> None:
    """Store a log, as the service does while it catches up: the next commits are read and checked while a thread of the
    warehouse's own stores those before."""
    chain = Chain()
    with ThreadPoolExecutor(1) as thread:
        storing: Future[Cursor] | None = None
        for batch in batches(payloads):
            read: list[CommitBytes] = []
            for sequence, payload in batch:
                envelope = decode_envelope(payload)
                chain.extend(Stored(sequence, subjects.log("queue"), payload), envelope)
                read.append(CommitBytes.of(sequence, envelope))
            if storing is not None:
                storing.result()
            storing = thread.submit(warehouse.store, read, dict(chain.heads), "bench", SampleIntake([], [], {}))
        if storing is not None:
            storing.result()


class _Typed(msgspec.Struct):
    type: str
    cause: str
    job: str | None = None
    attempt: int | None = None
    node: str | None = None
    queue: str | None = None
    user: str | None = None


def decoded(directory: Path, payloads: list[bytes]) -> int:
    """Baseline: chain check, each event decoded in Python, columns inserted as lists."""
    database, chain, decoder = (
        duckdb.connect(str(directory / "base.duckdb"), config={"threads": 1}),
        Chain(),
        msgspec.json.Decoder(_Typed),
    )
    database.execute(
        f"CREATE TABLE events ({', '.join(f'"{column.name}" {column.type}' for column in EVENTS.columns)})"
    )
    for batch in batches(payloads):
        columns: list[list[object]] = [[] for _ in range(12)]
        for sequence, payload in batch:
            envelope = decode_envelope(payload)
            chain.extend(Stored(sequence, subjects.log("queue"), payload), envelope)
            for index, raw in enumerate(envelope.events):
                e = decoder.decode(raw)
                row = (
                    sequence,
                    index,
                    "queue",
                    envelope.at_ns,
                    e.type,
                    e.job,
                    e.attempt,
                    e.node,
                    e.queue,
                    e.user,
                    e.cause,
                    bytes(raw).decode(),
                )
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
        database.execute(
            """INSERT INTO events SELECT unnest($1), unnest($2), unnest($3), make_timestamp_ns(unnest($4)), unnest($4), unnest($5),
            unnest($6), unnest($7), unnest($8::VARCHAR[]), unnest($9::VARCHAR[]), unnest($10::VARCHAR[]), unnest($11), unnest($12)""",
            columns,
        )
    row = database.execute("SELECT count(*) FROM events").fetchone()
    database.close()
    return row[0] if row else 0


def measured(how: Callable[[Path, list[bytes]], int], payloads: list[bytes], events: int) -> dict[str, float]:
    """CPU and wall microseconds per event."""
    with tempfile.TemporaryDirectory() as directory:
        cpu, wall = _cpu_s(), time.perf_counter()
        count = how(Path(directory), payloads)
        cpu, wall = _cpu_s() - cpu, time.perf_counter() - wall
    if count != events:
        raise SystemExit(f"{how.__name__}: {count} rows for {events} events")
    return {"cpu_us_per_event": round(cpu / events * 1e6, 2), "wall_us_per_event": round(wall / events * 1e6, 2)}


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print one line per number of events per commit and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=300_000)
    count = parser.parse_args().events
    for per_commit in (1, 12, 300):
        payloads = log_of(count if per_commit > 1 else count // 5, per_commit)
        events = len(payloads) * per_commit
        for how in (stored, decoded):
            row = {
                "way": how.__name__,
                "events_per_commit": per_commit,
                "events": events,
                **measured(how, payloads, events),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
