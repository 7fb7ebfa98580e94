"""Gate for the statements that people may run: decided on DuckDB's own syntax tree, by a list of permitted nodes. Pure.

The database itself is also locked down (`worker.py`). The gate refuses the statements that the lock leaves open: PRAGMA,
CHECKPOINT, temporary tables, and every function that is not on the list of `functions.py`. Start at `check`.
"""

import json
import re
from difflib import get_close_matches
from typing import Any

import duckdb

from fairlead_telemetry.sql.functions import ALLOWED

QUERY_CHARS_MAX = 64 * 1024

#: Statements that read, in the parser's words. A data-changing CTE is another kind of node.
_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
#: Table functions that make rows from their arguments alone. All others read files, settings or other SQL text.
TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"})
#: Tables that reveal which files are where on the disk.
_INNER_TABLES = ("duckdb_", "pragma_", "pg_settings")
_EXPLAIN = re.compile(r"\s*explain(\s+analyze)?\s+", re.IGNORECASE)
_PARSER = duckdb.connect(":memory:", config={"enable_external_access": "false", "threads": 1})


class Refused(Exception):
    """A statement that people may not run; `hint` says what they may do instead."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


_READ_ONLY = "one statement that reads: SELECT, WITH, FROM, DESCRIBE, SHOW TABLES, SUMMARIZE or EXPLAIN of one"


def check(query: str) -> None:
    """Accept one reading statement over tables and views, or raise Refused."""
    if len(query) > QUERY_CHARS_MAX:
        raise Refused(
            "too_long", f"the query has {len(query)} characters, at most {QUERY_CHARS_MAX} are read", "shorten it"
        )
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise Refused("syntax", str(error), "DuckDB's SQL is documented at duckdb.org/docs/sql") from error
    if len(statements) != 1:
        raise Refused("forbidden", f"{len(statements)} statements, expected one", f"send {_READ_ONLY}")
    kind = _kind(statements[0])
    if kind == "EXPLAIN":
        explain = _EXPLAIN.match(query)
        if explain is None:
            raise Refused("forbidden", "this form of EXPLAIN is not allowed", "EXPLAIN [ANALYZE] SELECT …")
        return check(query[explain.end() :])
    if kind != "SELECT":
        raise Refused("forbidden", f"{kind} statements are not allowed here", f"send {_READ_ONLY}")
    _check_tree(_tree(query))
    return None


def _kind(statement: duckdb.Statement) -> str:
    try:
        return statement.type.name
    except ValueError:  # newer kinds have no name in DuckDB's Python module
        return "such"


def _tree(query: str) -> Any:
    row = _PARSER.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchone()
    tree = json.loads(row[0]) if row else {"error": True}
    if tree.get("error"):
        # The serialiser is the parser, and knows SELECT alone; PIVOT becomes several statements.
        raise Refused("forbidden", "only plain SELECT statements are read here", f"send {_READ_ONLY}; no PIVOT")
    return tree


def _check_tree(tree: Any) -> None:
    # A stack instead of recursion: a hostile query may nest deeper than Python's stack.
    stack = [tree]
    while stack:
        found = stack.pop()
        if isinstance(found, list):
            stack.extend(found)
        elif isinstance(found, dict):
            _check_node(found)
            stack.extend(value for value in found.values() if isinstance(value, dict | list))


def _check_function(name: str) -> None:
    if name in ALLOWED:
        return
    close = get_close_matches(name, ALLOWED, n=1)
    hint = f"did you mean {close[0]}()?" if close else "functions that compute from their arguments are allowed"
    raise Refused("forbidden", f"function {name[:80]}() is unknown or not allowed", hint)


def _check_node(node: dict[str, Any]) -> None:
    kind = node.get("type")
    if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _NODES:
        raise Refused(
            "forbidden", f"{kind.removesuffix('_QUERY_NODE')} is not allowed inside a query", f"send {_READ_ONLY}"
        )
    if kind == "TABLE_FUNCTION":
        name = str(node.get("function", {}).get("function_name", "")).lower()
        if name not in TABLE_FUNCTIONS:
            raise Refused(
                "forbidden", f"table function {name}() is not allowed", "read the tables that SHOW TABLES lists"
            )
    elif node.get("class") in ("FUNCTION", "WINDOW"):
        _check_function(str(node.get("function_name", "")).lower())
    elif kind == "BASE_TABLE" and str(node.get("table_name", "")).lower().startswith(_INNER_TABLES):
        raise Refused(
            "forbidden", f"{node['table_name']} is not allowed", "use information_schema.columns or SHOW TABLES"
        )
    elif kind == "BASE_TABLE" and any(mark in str(node.get("table_name", "")) for mark in "/.*?["):
        # The files that views read can be reached, and shall be read through the views alone.
        raise Refused(
            "forbidden", f"file {node['table_name'][:80]} is not allowed", "read the tables that SHOW TABLES lists"
        )
