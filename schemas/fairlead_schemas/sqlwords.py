"""SQL requests to the warehouse and their answers: between gateway and telemetry service, and to people.

An answer is JSON. If CSV or Arrow was requested, it is one line of JSON (an `SqlHead`, or {"error": …}), a line
break, and the bytes.
"""

from typing import Literal, get_args

import msgspec

from fairlead_schemas.callers import Caller

type SqlFormat = Literal["json", "csv", "arrow"]
SQL_FORMATS: tuple[SqlFormat, ...] = get_args(SqlFormat.__value__)
#: As HTTP names them. Arrow is its IPC stream.
MEDIA_TYPES: dict[SqlFormat, str] = {
    "json": "application/json",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
}
#: Rows that one answer has at most.
ROWS_MAX = 10_000


class SqlRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Request of rpc("telemetry", "sql")."""

    caller: Caller
    query: str
    limit: int = ROWS_MAX
    format: SqlFormat = "json"
    #: Seconds that it may take; at most what the service allows, which is also what None stands for.
    timeout_s: float | None = None
    #: Chosen by who asks, so that it can be cancelled by it; "": it cannot.
    id: str = ""


class SqlCancel(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Request of rpc("telemetry", "sql_cancel"). Only the user of the query, or an admin, may cancel."""

    caller: Caller
    id: str


class SqlHead(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Head of an answer, without its rows."""

    #: [{"name", "type"}], types as DuckDB calls them.
    columns: list[dict[str, str]]
    #: The log sequence that it is true for.
    sequence: int
    truncated: bool
    elapsed_ms: float
    #: Of a truncated answer: what it was cut at.
    cut: str = ""
    #: Rows of the caller's own that the tables which were asked do not have.
    left_out: str = ""
