"""Cores are pure, and no module imports another's shell. The direction of imports between packages is checked by
import-linter (pyproject.toml); this file checks the imports of single modules. Each failure names its cure."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house.import_rules import BANNED, BANNED_CALLS, BUS_FOR_CORES, CORES, PACKAGES, SERVICES, SHELL_USERS, SHELLS

ROOT = Path(__file__).parents[2]


class Module(NamedTuple):
    """One source file."""

    name: str  # dotted
    path: Path

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    @property
    def within(self) -> str:
        return self.name.partition(".")[2]


@cache
def modules(package: str) -> list[Module]:
    """All modules of a package."""
    base = ROOT / PACKAGES[package]
    found: list[Module] = []
    for path in sorted((base / package).rglob("*.py")):
        parts = list(path.relative_to(base).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found.append(Module(".".join(parts), path))
    return found


def lies_in(name: str, places: Iterable[str]) -> bool:
    """True for one of the places, or something below one."""
    return any(name == place or name.startswith(f"{place}.") for place in places)


def is_shell(name: str) -> bool:
    """True for what may touch the world: a listed shell, or in a package that lists its cores anything else."""
    package, _, within = name.partition(".")
    if package in SHELLS:
        return lies_in(within, SHELLS[package])
    return within != "" and not lies_in(within, CORES.get(package, ()))


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import; `from a import b` counts as both `a` and `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, callee as written) of every call of a name or of an attribute of a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.lineno, ast.unparse(node.func)


PURE = [m for package in (*SHELLS, *CORES) for m in modules(package) if not is_shell(m.name)]


def impurities(source: str, package: str) -> list[str]:
    """Yield each impurity of a core's source with its line and its cure."""
    tree = ast.parse(source)
    found: list[str] = []
    for line, name in imports(tree):
        top = name.partition(".")[0]
        if top in BANNED:
            found.append(f"line {line}: imports {name}: {BANNED[top]}")
        if top == "fairlead_bus" and not any(name == ok or name.startswith(f"{ok}.") for ok in BUS_FOR_CORES):
            found.append(f"line {line}: imports {name}: a core may import {', '.join(BUS_FOR_CORES)} only")
        if top == package and is_shell(name):
            found.append(f"line {line}: imports the shell {name}: move what the core needs into a module of its own")
    for line, name in calls(tree):
        if name in BANNED_CALLS:
            found.append(f"line {line}: calls {name}(): {BANNED_CALLS[name]}")
    found += [
        f"line {node.lineno}: is a coroutine: a core does not wait"
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef)
    ]
    return found


@pytest.mark.parametrize("module", PURE, ids=lambda m: m.name)
def test_a_core_touches_nothing_outside(module: Module) -> None:
    """A core imports no clock, chance, network, files, processes or logging; else list it in import_rules.SHELLS."""
    assert impurities(module.path.read_text(), module.package) == []


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "import os.path",
        "from time import time_ns",
        "from datetime import datetime\nnow = datetime.now()",
        "from fairlead_bus import service",
        "from fairlead_bus.port import Bus",
        "from fairlead_queue import service",
        "def f():\n    import random",
        "async def f() -> None: ...",
        "print(1)",
    ],
)
def test_the_check_itself_sees_each_way_out(source: str) -> None:
    """The rule can fail: every kind of impurity is found."""
    assert impurities(source, "fairlead_queue") != []


@pytest.mark.parametrize(
    "source", ["import msgspec", "from fairlead_bus.core import Decision", "from datetime import datetime"]
)
def test_the_check_lets_pure_code_pass(source: str) -> None:
    """And it does not fail on what cores are made of."""
    assert impurities(source, "fairlead_queue") == []


def uses_shell_of_service(module: Module, name: str) -> bool:
    """True when a module outside the services imports a shell that it has no leave to use."""
    if name.partition(".")[0] not in SERVICES or not is_shell(name):
        return False
    leave = [shells for user, (shells, _) in SHELL_USERS.items() if lies_in(module.name, [user])]
    return not any(lies_in(name, shells) for shells in leave)


@pytest.mark.parametrize("package", ["fairlead_replay", "fairlead"])
def test_replay_and_command_line_use_services_cores_only(package: str) -> None:
    """Replay and the command line never import a service's shell; a service runs as a process of its own."""
    wrong = [
        f"{module.path.relative_to(ROOT)}:{line}: imports the shell {name}"
        for module in modules(package)
        for line, name in module_imports(ast.parse(module.path.read_text()))
        if uses_shell_of_service(module, name)
    ]
    assert wrong == []


def module_imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """As `imports`, without the names that are no modules."""
    return ((line, name) for line, name in imports(tree) if name in all_names())


@cache
def all_names() -> set[str]:
    """Of every module of every package."""
    return {module.name for package in PACKAGES for module in modules(package)}


def test_everything_listed_exists() -> None:
    """Removed modules leave the lists, so that an old name cannot exempt something new."""
    listed = {f"{package}.{name}" for table in (SHELLS, CORES) for package, found in table.items() for name in found}
    listed |= {*SHELL_USERS, *(shell for shells, _ in SHELL_USERS.values() for shell in shells)}
    assert listed - all_names() == set()


def test_subjects_are_spelled_in_one_place() -> None:
    """No source but subjects.py spells a subject; use its functions."""
    wrong = [
        f"{module.path.relative_to(ROOT)}:{node.lineno}: {node.value!r}"
        for package in PACKAGES
        for module in modules(package)
        if module.name != "fairlead_schemas.wire.subjects"
        for node in ast.walk(ast.parse(module.path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(
            tuple(
                f"fairlead.{kind}"
                for kind in ("ask", "log.", "cmd.", "sample.", "output.", "beat.", "report.", "confirm.", "rpc.")
            )
        )
        and " " not in node.value
    ]
    assert wrong == []
