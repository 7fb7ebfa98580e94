"""Names in Markdown pages and docstrings: every file, folder, module, class and identifier of ours is one that the tree has.

A rename that forgets a page would send its readers to a file of before. `python -m tests.house.measure` is about words; this is about names.
"""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from fairlead_replay.policy_test.metrics import metric_named
from tests.house.measure import ROOT, docstrings

#: Files that pages invent for their readers' jobs.
READERS_FILES = frozenset(
    {"train.py", "serve.py", "pipeline.py", "mypackage.py", "plots.py", "mine.py", "smallest.py", "FILE.py"}
)
#: Folders that a command makes.
MADE = frozenset({"dist/"})
#: {page: names of before, which the page says are gone}
GONE = {"docs/adr/0010-queue-tree-per-pool.md": {"ConfigureQueue"}}
_FILE = re.compile(r"(?<![\w./*-])[\w-][\w.-]*(?:/[\w.-]+)*\.(?:py|md)\b")
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_FOLDER = re.compile(r"[\w-]+(?:/[\w-]+)*/")
_MODULE = re.compile(r"fairlead_\w+(?:\.\w+)+")
_CLASS = re.compile(r"((?:[A-Z][a-z0-9]+){2,})(?:\.\w+)?")
_WORD = re.compile(r"([a-z_][a-z0-9]*(?:_[a-z0-9]+)+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?:\(\))?")
_TEXT = frozenset({".py", ".json", ".toml", ".yml", ".yaml", ".conf", ".service", ".sh"})


@cache
def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [Path(name) for name in listed.stdout.splitlines() if (ROOT / name).exists()]


@cache
def paths() -> frozenset[str]:
    """Every file and folder, by every ending of its path: "a/b.py", "b.py"."""
    whole = {*tracked(), *(above for path in tracked() for above in path.parents)}
    return frozenset("/".join(path.parts[at:]) for path in whole for at in range(len(path.parts)))


@cache
def words() -> frozenset[str]:
    """Every word of the sources, of tests and of data that programs read."""
    own = Path(__file__).relative_to(ROOT)
    read = (path for path in tracked() if path.suffix in _TEXT and path != own)
    texts = ((ROOT / path).read_text(errors="replace") for path in read)
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


def part_of(page: Path) -> Path | None:
    """Return the folder of the part that a README describes; None for pages about all of the house."""
    return page.parent if page.name == "README.md" and page.parts[0] in {"services", "replay"} else None


def has_path(name: str, page: Path) -> bool:
    """Return True if a page may name the path: from the root, from its own folder, or, briefly, by the end of a path of its part."""
    name = name.strip("/")
    if (ROOT / name).exists() or (ROOT / page.parent / name).exists():
        return True
    part = part_of(page)
    if part is None or name.startswith(("fairlead_", "test_")):
        return name in paths()
    return any(
        str(path).endswith(f"/{name}") or f"/{name}/" in str(path) for path in tracked() if path.is_relative_to(part)
    )


def has_installed(name: str) -> bool:
    """Return True for a file of Python's library or of a package that we depend on, as profiles name them: asyncio/streams.py."""
    package, _, rest = name.partition("/")
    spec = find_spec(package) if rest and package.isidentifier() else None
    return any((Path(folder) / rest).is_file() for folder in (spec and spec.submodule_search_locations) or ())


def has_module(name: str) -> bool:
    """Return True for a module or a package, and for a name that one has."""
    path = name.replace(".", "/")
    if path in paths() or f"{path}.py" in paths():
        return True
    above, _, last = path.rpartition("/")
    owners = [each for each in tracked() if str(each).endswith((f"/{above}.py", f"/{above}/__init__.py"))]
    return any(re.search(rf"\b{last}\b", (ROOT / owner).read_text()) for owner in owners)


def has_word(name: str) -> bool:
    """Return True for a word of the sources, for the end of one, as tables of metrics have it (`_usage_gpus`), or for a metric
    of plays that is made from its percentile (`wait_p99`).
    """
    ending = name.startswith("_") and any(word.endswith(name) for word in words())
    return name in words() or ending or metric_named(name) is not None


def missing(page: Path, text: str) -> Iterator[str]:
    """Yield the names of a page that nothing in the tree has."""
    for found in _FILE.finditer(text):
        if found[0] not in READERS_FILES and not has_path(found[0], page) and not has_installed(found[0]):
            yield found[0]
    for span in _SPAN.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if span in MADE or span in GONE.get(str(page), ()):
            continue
        if (
            (_FOLDER.fullmatch(span) and not has_path(span, page))
            or (_MODULE.fullmatch(span) and not has_module(span))
            or ((kind := _CLASS.fullmatch(span)) and kind[1] not in words())
            or ((word := _WORD.fullmatch(span)) and not has_word(word[1]))
        ):
            yield span


PAGES = [
    path
    for path in tracked()
    if path.suffix == ".md" and not path.is_relative_to("tests/data") and path.name != "0000-template.md"
]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_names_what_there_is(page: Path) -> None:
    """Rename it on the page, too; a file that is the reader's own belongs into READERS_FILES above."""
    assert list(missing(page, (ROOT / page).read_text())) == []


def test_docstrings_name_files_that_there_are() -> None:
    """By the end of the path: a docstring speaks of its neighbours by their names."""
    found = [
        f"{one.path.relative_to(ROOT)}:{one.line}: {name}"
        for one in docstrings()
        for name in _FILE.findall(one.text)
        if name not in READERS_FILES and name not in paths()
    ]
    assert found == []


def test_the_check_can_fail() -> None:
    """Names of before are found, in each form; names of today are not."""
    page = Path("services/placer/README.md")
    assert list(
        missing(
            page,
            "see `making_room/` and placing.py, `packing/lattice.py`, `asyncio/rivers.py`: `fairlead_placer.nowhere`, `SeatChooser`, `no_such_name`",
        )
    ) == [
        "placing.py",
        "packing/lattice.py",
        "asyncio/rivers.py",
        "making_room/",
        "fairlead_placer.nowhere",
        "SeatChooser",
        "no_such_name",
    ]
    assert (
        list(
            missing(
                page,
                "`packing/`, `scheduling/allocate.py`, `docs/adr/`, `JobPlaced`, `fairlead_placer.core`, `_usage_gpus`, `asyncio/streams.py`, `wait_p99`",
            )
        )
        == []
    )
    assert list(missing(page, "`telemetry/` and sim/world.py")) == ["sim/world.py", "telemetry/"], (
        "names of other parts need their paths"
    )


def test_the_map_names_where_to_start() -> None:
    """Each path in the map's last column is in the folder of its row."""
    rows = re.findall(r"^\| `([\w/]+)` \|.*\| (`.+`) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    starts = [f"{folder}/{name}" for folder, names in rows for name in re.findall(r"`([^`]+)`", names)]
    assert len(rows) > 7 and not [path for path in starts if not (ROOT / path).exists()]
