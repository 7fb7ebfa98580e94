"""The process that runs people's SQL: reads questions on stdin, answers on stdout, and knows nothing else.

It sees a read-only copy of the warehouse, no environment and no network code; DuckDB is told to
touch no other file, load no extension, use one thread and bounded memory, and the operating
system bounds its address space. DuckDB has no privilege boundary of its own: whoever finds a hole
in the engine has this process, as this user. It holds no credential.

A frame is a 4-byte big-endian length and JSON. Question: {"path", "query", "limit", "deadline_s"}.
"""

import base64
import math
import resource
import struct
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import msgspec

from fairlead_telemetry.measured.reach import open_copy
from fairlead_telemetry.sql_gate import Refused, check

#: An answer, whole, stays below a bus message (1 MiB) with room for the envelope.
ANSWER_BYTES_MAX = 900 * 1024
ROWS_PER_FETCH = 256
#: Part of the type's name of every zoned time.
ZONED = "WITH TIME ZONE"
ADDRESS_SPACE_BYTES = 4 * 2**30
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


class Question(msgspec.Struct):
    """One query on one copy."""

    path: str
    query: str
    limit: int
    deadline_s: float


class Desk:
    """The open copy, exchanged when a question names another."""

    def __init__(self) -> None:
        self._path = ""
        self._db: duckdb.DuckDBPyConnection | None = None
        self._sequence = 0

    def answer(self, question: Question) -> bytes:
        """JSON of the rows, or of {"error": {code, message, hint}}."""
        try:
            check(question.query)
            return self._rows(question)
        except Refused as refused:
            return _error(refused.code, str(refused), refused.hint)
        except duckdb.Error as error:
            return self._failed(error, question.deadline_s)
        except (OverflowError, ValueError) as error:
            # A value beyond what Python's own types hold, such as an interval of two billion days.
            return _error("query_failed", f"a value cannot be given: {error}", "cast the column to VARCHAR")
        except MemoryError:
            return _error("out_of_memory", "the query needs more memory than it may have", "aggregate or filter more")

    def _open(self, path: str) -> duckdb.DuckDBPyConnection:
        if self._db is None or path != self._path:
            if self._db is not None:
                self._db.close()
            self._db = open_copy(path, CONFIG)
            row = self._db.execute("SELECT coalesce(max(sequence), 0) FROM cursor").fetchone()
            self._path, self._sequence = path, row[0] if row else 0
        return self._db

    def _rows(self, question: Question) -> bytes:
        db, started = self._open(question.path), time.perf_counter()
        timer = threading.Timer(question.deadline_s, db.interrupt)
        timer.start()
        try:
            result = db.execute(question.query)
            columns = [{"name": name, "type": str(kind)} for name, kind, *_ in result.description or ()]
            if any(ZONED in column["type"] for column in columns):
                result = db.execute(_zones_as_text(db, question.query, [column["type"] for column in columns]))
            rows, truncated = _fetch(result, question.limit)
        finally:
            timer.cancel()
        head = msgspec.json.encode(
            {
                "columns": columns,
                "sequence": self._sequence,
                "truncated": truncated,
                "elapsed_ms": round((time.perf_counter() - started) * 1000, 1),
            }
        )
        return b'%b,"rows":[%b]}' % (head[:-1], b",".join(rows))

    def _failed(self, error: duckdb.Error, deadline_s: float) -> bytes:
        message = str(error)
        if self._path:
            message = message.replace(str(Path(self._path).parent), "…")
        if isinstance(error, duckdb.InterruptException):
            return _error(
                "deadline", f"stopped after {deadline_s:g} s", "filter by time or sequence, or aggregate less"
            )
        if isinstance(error, duckdb.OutOfMemoryException):
            return _error("out_of_memory", "the query needs more memory than it may have", "aggregate or filter more")
        if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
            return _error(
                "unknown_name",
                message,
                "fairlead sql --tables lists tables and columns (SHOW TABLES and DESCRIBE do, too)",
            )
        if isinstance(error, duckdb.PermissionException):
            return _error("forbidden", message, "read the tables that SHOW TABLES lists")
        return _error("query_failed", message, "")


def _zones_as_text(db: duckdb.DuckDBPyConnection, query: str, types: Sequence[str]) -> str:
    """The query with its zoned times spelled out by DuckDB: for Python it would need a time zone package of its own."""
    # There and back leaves the bare statement, without comments that would swallow what is put around it.
    row = db.execute("SELECT json_deserialize_sql(json_serialize_sql(?::VARCHAR))", [query]).fetchone()
    assert row is not None
    names = [f"c{i}" for i in range(len(types))]
    told = ", ".join(f"CAST({n} AS VARCHAR)" if ZONED in t else n for n, t in zip(names, types, strict=True))
    # SQL is what people send here, and the gate has passed it.
    return f"SELECT {told} FROM ({row[0].rstrip(';')}) AS q({', '.join(names)})"  # noqa: S608


def _fetch(result: duckdb.DuckDBPyConnection, limit: int) -> tuple[list[bytes], bool]:
    """Up to `limit` encoded rows within ANSWER_BYTES_MAX, and whether any were left out."""
    rows: list[bytes] = []
    size = 0
    while chunk := result.fetchmany(min(ROWS_PER_FETCH, limit + 1 - len(rows))):
        for row in chunk:
            encoded = msgspec.json.encode([plain(value) for value in row])
            size += len(encoded) + 1
            if len(rows) == limit or size > ANSWER_BYTES_MAX:
                return rows, True
            rows.append(encoded)
    return rows, False


def plain(value: Any) -> Any:
    """A DuckDB value as JSON can hold it: bytes as base64, integers beyond 64 bits and NaN as text."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): plain(item) for key, item in value.items()}
    return str(value)  # dates, times, intervals, decimals, UUIDs: their usual spelling


def _error(code: str, message: str, hint: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message[:4000], "hint": hint}})


def main(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    desk, decoder = Desk(), msgspec.json.Decoder(Question)
    while len(header := source.read(4)) == 4:
        answer = desk.answer(decoder.decode(source.read(*struct.unpack(">I", header))))
        sink.write(struct.pack(">I", len(answer)) + answer)
        sink.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
