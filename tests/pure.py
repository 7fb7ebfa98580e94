"""The pure layer of tests, which start no process, open no socket and do not wait: its files, and the guard under which it runs.

A file is classified by its imports, not by a list: it is pure if it and the helpers under `tests` that it imports name no
module of `STARTERS`. Within it, a coroutine or a test with a marker of `CONNECTED` is not pure. A file that reaches a process or
socket only through the product has `pytestmark = pytest.mark.connected`; a single test has the mark itself; the guard finds one that lacks it, in every run.
"""

import ast
import contextlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Modules that a test imports to start something, to connect, or to wait. The warehouse is a database, and copies its files in a
#: process of its own.
STARTERS = frozenset(
    [
        "docker",
        "duckdb",
        "fairlead.stack.processes",
        "fairlead_telemetry.sql",
        "fairlead_telemetry.warehouse",
        "multiprocessing",
        "nats",
        "pty",
        "socket",
        "subprocess",
        "tests.kit.eventually",
        "threading",
    ]
)
#: Parts whose tests play whole clusters, pages or benchmarks: no rules that a person waits for.
WHOLE = frozenset(["bench", "deploy", "docs", "hostile", "sim", "system"])
CONNECTED = ("connected", "nats", "docker", "gpu", "hosts", "mpi", "torch", "slapd")
#: Events of `sys.audit` that a pure test does not cause.
FORBIDDEN = frozenset(
    [
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.system",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "subprocess.Popen",
    ]
)
#: Longer than a yield to other threads.
SLEEP_MAX_S = 0.01


@cache
def is_pure_file(path: Path) -> bool:
    """Return True if the file and its helpers import nothing that starts a process, connects or waits."""
    return _part(path) not in WHOLE and _starters(path) == frozenset()


def _part(path: Path) -> str:
    """Return the folder under `tests`; "" outside of it."""
    return path.relative_to(ROOT / "tests").parts[0] if path.is_relative_to(ROOT / "tests") else ""


@cache
def _starters(path: Path) -> frozenset[str]:
    """Return the modules of `STARTERS` that the file imports, by itself or through helpers."""
    found: set[str] = set()
    seen = {path}
    todo = [path]
    while todo:
        for name in _imports(todo.pop()):
            found.update(name for starter in STARTERS if name == starter or name.startswith(f"{starter}."))
            helper = ROOT / f"{name.replace('.', '/')}.py"
            if name.startswith("tests.") and helper.exists() and helper not in seen:
                seen.add(helper)
                todo.append(helper)
    return frozenset(found)


@cache
def _imports(path: Path) -> frozenset[str]:
    """Return the modules that a file imports, `from a import b` as both `a` and `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def is_pure(item: pytest.Item) -> bool:
    """Return True if a collected test belongs to the pure layer."""
    if any(item.get_closest_marker(marker) is not None for marker in CONNECTED):
        return False
    return is_pure_file(item.path) and not inspect.iscoroutinefunction(getattr(item, "obj", None))


class _Guard:
    """The audit hook of this process. An audit hook cannot be removed, so it is installed once and armed for each pure test."""

    def __init__(self) -> None:
        self.armed = False
        self.caught: list[str] = []
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.armed:
            return
        if event in FORBIDDEN or (event == "time.sleep" and float(str(arguments[0])) > SLEEP_MAX_S):
            self.caught.append(f"{event}{arguments!r:.200}")
            raise RuntimeError(f"a pure test caused {self.caught[-1]}")


@cache
def _guard() -> _Guard:
    return _Guard()


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Refuse processes, connections and waits. Code that swallows the refusal fails at the end."""
    guard = _guard()
    guard.caught.clear()
    guard.armed = True
    try:
        yield
    finally:
        guard.armed = False
    if guard.caught:
        pytest.fail(
            f"expected a pure test, found {', '.join(guard.caught)}: take it out, or mark the file `connected`", False
        )
