"""Folded tables, with the contents of each row. Internal; people read the views over them (`schema/`).

Generations keep a transaction's cost proportional to the rows that it touches. `open_*` hold rows that may still change
and stay as small as the cluster's present; `done_*` only grow. `jobs` alone is updated forever, by its key.

The events that a fold has still to take in, as the first relation of each of its statements.
"""

from typing import NamedTuple, Self

#: Increase when a table or a rule of the fold changes: a warehouse of another version is folded again when
#: opened.
VERSION = 8
#: From this version on `user` and `queue` of every row of `events` are filled, those of events that name none included.
OWNERS_SINCE = 7

SCHEMA = "CREATE SCHEMA IF NOT EXISTS fold"

_STATE = "CREATE TABLE IF NOT EXISTS fold.state (version INTEGER, sequence UBIGINT)"

#: Every job, array and element. `*_place` orders events: place(sequence, idx); `said` is the state that the newest of them says.
_JOBS = """
CREATE TABLE IF NOT EXISTS fold.jobs (
  job VARCHAR PRIMARY KEY, born_as VARCHAR, name VARCHAR, kind VARCHAR, queue VARCHAR, "user" VARCHAR, project VARCHAR,
  priority INTEGER, is_array BOOLEAN, gpu_milli BIGINT, submitted_ns BIGINT,
  first_sequence UBIGINT, sequence UBIGINT, attempt UINTEGER,
  said VARCHAR, said_place BIGINT, offered_attempt UINTEGER, offered_place BIGINT,
  stop_place BIGINT, requeue_place BIGINT, ended_as VARCHAR, ended_at TIMESTAMP, ended_place BIGINT,
  started_attempt UINTEGER, started_at TIMESTAMP, placed_attempt UINTEGER, nodes VARCHAR,
  run_attempt UINTEGER, exit_code INTEGER, signal INTEGER, reason VARCHAR,
  first_placed_ns BIGINT, first_placed_queue VARCHAR)"""

#: Births of jobs and arrays (not elements) that have not ended: what elements and placements take after.
_OPEN_JOBS = """
CREATE TABLE IF NOT EXISTS fold.open_jobs (
  job VARCHAR, name VARCHAR, kind VARCHAR, queue VARCHAR, "user" VARCHAR, project VARCHAR, priority INTEGER,
  is_array BOOLEAN, gpu_milli BIGINT, submitted_ns BIGINT, waits BOOLEAN)"""

_MOVES = "CREATE TABLE IF NOT EXISTS fold.moves (job VARCHAR, queue VARCHAR, since BIGINT)"

_PART = """job VARCHAR, attempt UINTEGER, rank INTEGER, node VARCHAR, gpus VARCHAR[], gpu_count INTEGER, gpu_milli BIGINT,
  cpu_milli BIGINT, memory_mib BIGINT, placed_ns BIGINT, released_ns BIGINT"""

_RUN = """job VARCHAR, attempt UINTEGER, queue VARCHAR, "user" VARCHAR, placed_ns BIGINT, started_ns BIGINT, ended_ns BIGINT,
  outcome VARCHAR, exit_code INTEGER, signal INTEGER, noticed_ns BIGINT, saved_ns BIGINT"""

_PREEMPTIONS = """
CREATE TABLE IF NOT EXISTS fold.preemptions (
  job VARCHAR, attempt UINTEGER, beneficiary VARCHAR, rule VARCHAR, at_ns BIGINT, sequence UBIGINT)"""

_REQUEUES = """
CREATE TABLE IF NOT EXISTS fold.requeues (job VARCHAR, attempt UINTEGER, reason VARCHAR, at_ns BIGINT, sequence UBIGINT)"""

#: One row per node and queue; small.
_NODES = """
CREATE TABLE IF NOT EXISTS fold.nodes (
  node VARCHAR PRIMARY KEY, joined_at TIMESTAMP, times_lost INTEGER, presence VARCHAR, wish VARCHAR, quarantine VARCHAR,
  gpu_model VARCHAR, gpu_count INTEGER, cpu_milli BIGINT, memory_mib BIGINT, runtime VARCHAR, simulated BOOLEAN,
  sequence UBIGINT, gpus JSON, taints JSON)"""
#: Marks of nodes and their GPUs, in their latest state: faults by GPU, taints by setter, key and effect, suspicion.
_MARKS = """
CREATE TABLE IF NOT EXISTS fold.marks (
  node VARCHAR, kind VARCHAR, name VARCHAR, place BIGINT, holds BOOLEAN, code VARCHAR, PRIMARY KEY (node, kind, name))"""
#: The newest reservation of each job: it keeps the nodes while the job is offered.
_KEPT = "CREATE TABLE IF NOT EXISTS fold.kept (job VARCHAR PRIMARY KEY, nodes VARCHAR[])"
_QUEUES = """
CREATE TABLE IF NOT EXISTS fold.queues (path VARCHAR PRIMARY KEY, gpu_milli BIGINT, configured_at TIMESTAMP, there BOOLEAN)"""

#: One row from JobIdle on; `place` is that event's. Times are those of the events that say what became of it.
_IDLE = """
CREATE TABLE IF NOT EXISTS fold.idle (
  place BIGINT, job VARCHAR, attempt UINTEGER, rule VARCHAR, scope VARCHAR, action VARCHAR, mode VARCHAR, since_ns BIGINT,
  said_ns BIGINT, reclaim_at_ns BIGINT, evidence JSON, foreseen_ns BIGINT, shrunk_ns BIGINT, lease_ns BIGINT,
  requested_ns BIGINT, on_demand BOOLEAN, reclaim_evidence JSON, active_ns BIGINT, reason VARCHAR, active_evidence JSON,
  sequence UBIGINT)"""
_EXTENSIONS = """
CREATE TABLE IF NOT EXISTS fold.extensions (
  job VARCHAR, attempt UINTEGER, at_ns BIGINT, until_ns BIGINT, count INTEGER, "by" VARCHAR, sequence UBIGINT)"""

#: In order of creation. A done run carries what its parts held, in thousandths of a GPU times nanoseconds: exact.
TABLES = (
    _STATE,
    _JOBS,
    _OPEN_JOBS,
    _MOVES,
    f"CREATE TABLE IF NOT EXISTS fold.open_parts ({_PART})",
    f"CREATE TABLE IF NOT EXISTS fold.done_parts ({_PART})",
    f"CREATE TABLE IF NOT EXISTS fold.open_runs ({_RUN})",
    f"CREATE TABLE IF NOT EXISTS fold.done_runs ({_RUN}, nodes VARCHAR[], gpu_count INTEGER, gpu_milli_ns HUGEINT)",
    _PREEMPTIONS,
    _REQUEUES,
    _NODES,
    _MARKS,
    _KEPT,
    _QUEUES,
    _IDLE,
    _EXTENSIONS,
)


#: Parameters: places $low to $high, both included, and the sequences that they lie in (by which DuckDB skips the rest).
FRESH = """
fresh AS (
  SELECT *, place(sequence, idx) AS place FROM events
  WHERE sequence BETWEEN $first AND $last AND place(sequence, idx) BETWEEN $low AND $high)"""

IDX_BITS = 16  # of a place


class FoldStatement(NamedTuple):
    """A statement, needed where an event's type begins with one of `needs`."""

    needs: tuple[str, ...]
    statement: str
    reads_events: bool = True


class PlaceSpan(dict[str, int]):
    """Places `low` to `high` as the parameters of a statement."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(low=low, high=high, first=low >> IDX_BITS, last=high >> IDX_BITS)

    @classmethod
    def of_sequences(cls, first: int, last: int) -> Self:
        """All places of the commits from `first` to `last`, both included."""
        return cls(first << IDX_BITS, (last << IDX_BITS) + (1 << IDX_BITS) - 1)
