"""Process that runs people's SQL: reads queries on stdin, answers on stdout, and knows nothing else.

It sees a read-only copy of the warehouse with the rows that its caller may see, no environment and no network code.
DuckDB is configured to touch no other file, load no extension, and use one thread and bounded memory. The operating
system bounds its address space. DuckDB has no privilege boundary of its own: a person who finds a hole in the engine has
this process, as this user. It holds no credential.

A second thread reads, so that a query can be stopped while it is answered. Start at `main`; frames are those of
`worker_process.py`.

The copy of the warehouse is opened so that SQL reaches the files of days that its views read, and no other file.
"""

import os
import queue
import re
import resource
import struct
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import msgspec

from fairlead_schemas.queries.telemetry import START_ESTIMATES, SqlHead
from fairlead_telemetry.sql.allowed_statements import StatementRefused, check_statement
from fairlead_telemetry.sql.formats import UnknownFormat, format_rows
from fairlead_telemetry.sql.parquet_partitions import left_out
from fairlead_telemetry.sql.worker_process import WorkerInterrupt, WorkerQuery

#: Shut after the files are allowed, for afterwards nothing can be.
_SHUT = ("enable_external_access", "lock_configuration")


def open_copy(path: str, config: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    """Read-only, with all of this configuration."""
    db = duckdb.connect(
        path, read_only=True, config={name: value for name, value in config.items() if name not in _SHUT}
    )
    files = [
        str(Path(folder) / name)
        for folder, name in db.execute("SELECT folder, name FROM measured.place, sample_files").fetchall()
    ]
    if files:
        db.execute("SET allowed_paths = [{}]".format(", ".join("'" + file.replace("'", "''") + "'" for file in files)))
    for name in _SHUT:
        if name in config:
            db.execute(f"SET {name} = {config[name]}")
    return db


ADDRESS_SPACE_BYTES = 4 * 2**30
#: After the copy is open, what may be touched of the disk is nothing but what it spills.
CONFIG: dict[str, Any] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
    "memory_limit": "256MB",
    "max_temp_directory_size": "256MB",
    "threads": 1,
    "lock_configuration": "true",
}

_NARROWER = "filter by time or sequence, or aggregate less"
_LESS = "aggregate or filter more"
_TABLES = "read the tables that SHOW TABLES lists"


class QueryWorker:
    """Worker that answers queries from one open copy of the warehouse. It opens another copy when a query names one."""

    def __init__(self) -> None:
        self._path = ""
        self._db: duckdb.DuckDBPyConnection | None = None
        self._sequence = 0
        #: {table: what of the member's it does not have, in words}
        self._left_out: dict[str, str] = {}
        self._turn = threading.Lock()
        self._answering = 0
        #: Why the question was interrupted; "": it was not.
        self._ended_by = ""

    def answer(self, question: WorkerQuery) -> bytes:
        """The answer in the form asked for, or {"error": {code, message, hint}}."""
        with self._turn:
            self._answering, self._ended_by = question.number, ""
        timer = threading.Timer(question.deadline_s, self._interrupt, (question.number, "deadline"))
        timer.start()
        try:
            check_statement(question.query)
            return self._spelled(question)
        except StatementRefused as refused:
            return _error(refused.code, str(refused), refused.hint)
        except UnknownFormat as error:
            return _error("forbidden", str(error), "")
        except duckdb.Error as error:
            return self._failed(error, question.deadline_s)
        except (OverflowError, ValueError) as error:
            # A value beyond what Python's own types hold, such as an interval of two billion days.
            return _error("query_failed", f"a value cannot be given: {error}", "cast the column to VARCHAR")
        except MemoryError:
            return _error("out_of_memory", "the query needs more memory than it may have", _LESS)
        finally:
            timer.cancel()
            with self._turn:
                self._answering = 0

    def stop(self, number: int) -> None:
        """Interrupt this question, if it is still the one."""
        self._interrupt(number, "cancelled")

    def close(self) -> None:
        """Let the copy go."""
        if self._db is not None:
            self._db.close()
            self._db, self._path = None, ""

    def _interrupt(self, number: int, why: str) -> None:
        with self._turn:
            if number == self._answering and self._db is not None:
                self._ended_by = self._ended_by or why
                self._db.interrupt()

    def _open(self, path: str) -> duckdb.DuckDBPyConnection:
        if self._db is None or path != self._path:
            self.close()
            self._db = open_copy(path, CONFIG)
            row = self._db.execute("SELECT coalesce(max(sequence), 0) FROM cursor").fetchone()
            self._db.execute("CREATE TEMP TABLE people (id VARCHAR, login VARCHAR)")
            columns = ", ".join(f'"{name}" {type_}' for name, type_ in START_ESTIMATES.items())
            self._db.execute(f"CREATE TEMP TABLE start_estimates ({columns})")
            self._path, self._sequence = path, row[0] if row else 0
            self._left_out = left_out(self._db)
        return self._db

    def _spelled(self, question: WorkerQuery) -> bytes:
        db, started = self._open(question.path), time.perf_counter()
        _name_people(db, question.people)
        _add_estimates(db, question.start_estimates)
        columns, body, cut = format_rows(db, question.query, question.limit, question.format)
        head = SqlHead(
            columns=columns,
            sequence=self._sequence,
            truncated=bool(cut),
            cut=cut,
            left_out=self._missing(question.query),
            elapsed_ms=round((time.perf_counter() - started) * 1000, 1),
        )
        encoded = msgspec.json.encode(head)
        return b'%b,"rows":[%b]}' % (encoded[:-1], body) if question.format == "json" else encoded + b"\n" + body

    def _missing(self, query: str) -> str:
        """Return the notes on rows that the tables named in a query lack."""
        named = set(re.findall(r"\w+", query.lower()))
        return "; ".join(words for table, words in self._left_out.items() if table in named)

    def _failed(self, error: duckdb.Error, deadline_s: float) -> bytes:
        message = str(error)
        if self._path:
            message = message.replace(str(Path(self._path).parent), "…")
        if self._ended_by == "cancelled":
            return _error("cancelled", "stopped as asked", "")
        if isinstance(error, duckdb.InterruptException):
            return _error("deadline", f"stopped after {deadline_s:g} s", _NARROWER)
        if isinstance(error, duckdb.OutOfMemoryException):
            return _error("out_of_memory", "the query needs more memory than it may have", _LESS)
        if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
            hint = "fairlead sql --tables lists tables and columns (SHOW TABLES and DESCRIBE do, too)"
            return _error("unknown_name", message, hint)
        if isinstance(error, duckdb.PermissionException):
            return _error("forbidden", message, _TABLES)
        return _error("query_failed", message, "")


def _name_people(db: duckdb.DuckDBPyConnection, people: Mapping[str, str]) -> None:
    """Let the table `people` have these rows alone. It is in memory, so names are never stored. The table stays the same, since the
    catalog's ids would count the queries of others."""
    db.execute("DELETE FROM people")
    if people:
        rows = [[*people], [*people.values()]]
        db.execute("INSERT INTO people SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[])", rows)


def _add_estimates(db: duckdb.DuckDBPyConnection, rows: list[list[Any]]) -> None:
    """Let the table `start_estimates` have these rows alone, as `_name_people` does."""
    db.execute("DELETE FROM start_estimates")
    if rows:
        spread = ", ".join(
            "make_timestamp_ns(unnest(?::BIGINT[]))" if type_ == "TIMESTAMP_NS" else f"unnest(?::{type_}[])"
            for type_ in START_ESTIMATES.values()
        )
        db.execute(f"INSERT INTO start_estimates SELECT {spread}", [list(column) for column in zip(*rows, strict=True)])


def _error(code: str, message: str, hint: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message[:4000], "hint": hint}})


def main(source: BinaryIO, sink: BinaryIO) -> None:
    """Say that it is there, then answer until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    desk, questions = QueryWorker(), queue.SimpleQueue[WorkerQuery]()
    threading.Thread(target=_read, args=(source, desk, questions), daemon=True).start()
    _write(sink, b"")
    while True:
        _write(sink, desk.answer(questions.get()))


def _read(source: BinaryIO, desk: QueryWorker, questions: "queue.SimpleQueue[WorkerQuery]") -> None:
    decoder: msgspec.json.Decoder[WorkerQuery | WorkerInterrupt] = msgspec.json.Decoder(WorkerQuery | WorkerInterrupt)
    while len(header := source.read(4)) == 4:
        match decoder.decode(source.read(*struct.unpack(">I", header))):
            case WorkerInterrupt(number):
                desk.stop(number)
            case WorkerQuery() as question:
                questions.put(question)
    os._exit(0)  # the service is gone: no one waits for the answer


def _write(sink: BinaryIO, answer: bytes) -> None:
    sink.write(struct.pack(">I", len(answer)) + answer)
    sink.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
