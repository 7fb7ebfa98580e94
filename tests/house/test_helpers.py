"""What tests share is in helper modules: tests import no test, wait in one place, and give each world a name of its own."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
WAITS = ROOT / "tests/kit/eventually.py"
#: Names of functions that wait; one that also sleeps in a loop is a second `eventually`.
WAITING = re.compile(r"_?(until|eventually|wait|await|poll|soon)(_|$)")
#: Words that say nothing about which part is played.
WORLDS = {"World", "Cluster", "Node"}


@cache
def sources() -> dict[Path, ast.Module]:
    """{file: its tree} of all tests and benchmarks."""
    found = [path for folder in ("tests", "bench") for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path: ast.parse(path.read_text()) for path in found}


def imports_of_tests(tree: ast.AST) -> list[str]:
    """Modules of tests that a module imports."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if name.startswith("tests.") and ".test_" in name]


def polling(tree: ast.AST) -> Iterator[str]:
    """Names of functions that are called like a wait, and sleep in a loop."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not WAITING.match(node.name):
            continue
        loops = [each for each in ast.walk(node) if isinstance(each, ast.While | ast.For)]
        calls = [each for loop in loops for each in ast.walk(loop) if isinstance(each, ast.Call)]
        if any(ast.unparse(call.func).rpartition(".")[2] == "sleep" for call in calls):
            yield node.name


def classes(tree: ast.Module) -> Iterator[str]:
    """Names of the classes of a module."""
    return (node.name for node in tree.body if isinstance(node, ast.ClassDef))


def test_no_test_module_is_imported() -> None:
    """Move what several tests share to a module of their folder that is no test, or to tests/kit."""
    wrong = {
        str(path.relative_to(ROOT)): found for path, tree in sources().items() if (found := imports_of_tests(tree))
    }
    assert wrong == {}


def test_tests_wait_in_one_place() -> None:
    """Use `eventually` or `eventually_async` of tests/kit/eventually.py: they are bounded, and a failure names the condition."""
    wrong = {
        str(path.relative_to(ROOT)): found
        for path, tree in sources().items()
        if path != WAITS and path.is_relative_to(ROOT / "tests") and (found := list(polling(tree)))
    }
    assert wrong == {}


def test_no_two_classes_of_tests_have_one_general_name() -> None:
    """Name a class after the part that it plays: QueueWorld, PlacerWorld."""
    counts = Counter(
        name for path, tree in sources().items() if path.is_relative_to(ROOT / "tests") for name in classes(tree)
    )
    assert {name: count for name, count in counts.items() if name in WORLDS and count > 1} == {}


def test_each_check_can_fail() -> None:
    """Every form of an import, and a wait that polls, are found; a wait that delegates passes."""
    for source in (
        "from tests.queue.fairness.test_tree import x",
        "import tests.queue.fairness.test_tree",
        "from tests.queue import test_tree",
    ):
        assert imports_of_tests(ast.parse(source)) != []
    loop = "async def until(x):\n    while not x():\n        await asyncio.sleep(1)"
    assert list(polling(ast.parse(loop))) == ["until"]
    assert list(polling(ast.parse("async def until(x):\n    await eventually_async(x)"))) == []
