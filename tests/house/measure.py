"""Measurements of the house: sizes of files and functions, names of modules, openings of docstrings, words of prose.

    python -m tests.house.measure            the table
    python -m tests.house.measure --list     every docstring and line of prose that breaks the language rule, with the better word

The rule itself is a test, in `test_language.py`. Nothing here imports the product: sources are parsed.
"""

import argparse
import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PARTS = ("schemas", "bus", "rights", "services", "replay", "cli")
#: Lines below which a file is counted as small.
SMALL = 60
#: Files that explain why a job is where it is, and dry runs: their Python files are one feature, counted as one.
WHY = (
    "services/queue/fairlead_queue/explain",
    "services/placer/fairlead_placer/explain",
    "replay/fairlead_replay/explainer",
    "services/gateway/fairlead_gateway/why",
    "cli/fairlead/render/explanation.py",
)
#: Types in which these parts answer each other. They are counted apart: other questions have theirs in the same files.
WHY_TYPES = (
    "schemas/fairlead_schemas/queries/explainer.py",
    "schemas/fairlead_schemas/wire/placement_causes.py",
)
#: Lines that WHY should have at most.
WHY_GOAL = 2_400

FREE_RELATIVES = frozenset(
    [
        "what",
        "who",
        "whom",
        "whose",
        "whether",
        "which",
        "where",
        "how",
        "why",
        "when",
        "whatever",
        "whoever",
        "whichever",
        "however",
        "wherever",
    ]
)
NO_ANTECEDENT = frozenset(
    ["it", "its", "they", "their", "them", "one", "ones", "of", "as", "those", "that", "these", "this", "such", "so"]
)
#: Words that are neither a verb nor the beginning of a noun phrase, beside the two sets above.
OTHER_OPENINGS = frozenset(
    [
        "and",
        "or",
        "but",
        "nor",
        "by",
        "from",
        "for",
        "in",
        "on",
        "at",
        "to",
        "with",
        "without",
        "until",
        "while",
        "once",
        "after",
        "before",
        "if",
        "also",
        "not",
        "then",
        "there",
        "because",
        "since",
        "only",
        "even",
        "just",
        "still",
        "yet",
        "nothing",
        "nobody",
        "something",
        "somebody",
        "anything",
        "anybody",
        "everything",
        "everybody",
        "else",
        "is",
        "are",
        "was",
        "were",
        "be",
        "has",
        "have",
        "does",
        "did",
        "can",
        "may",
        "must",
        "should",
        "would",
        "will",
        "could",
        "might",
        "he",
        "she",
        "we",
        "you",
        "i",
    ]
)

#: {word of data that speaks, or of no English that is written today: what to write instead}
BETTER: dict[str, str] = {
    "told": "reported, notified, sent",
    "said": "reported, stated, set",
    "heard": "received, heartbeat seen",
    "spoken": "reported, named",
    "plea": "request",
    "pleas": "requests",
    "wish": "request",
    "wishes": "requests",
    "nobody": "no user, no job, nothing; or name the actor",
    "somebody": "a user, a client; or name the actor",
    "whoever": "the caller, a client, users who",
    "whomever": "the caller",
    "anew": "again, from scratch",
    "beside": "next to, with, in addition to",
    "besides": "also, in addition",
    "lies": "is, is stored",
    "stands": "is, is stored",
    "for ever": "permanently, indefinitely",
    "but for": "except",
    "none either": "none",
    "nor": "or, and no",
    "of those that": "of the ... that",
    "comes to": "totals, equals",
    "came to": "totalled",
    "stands in": "replaces",
    "stand in": "replace",
    "as far as": "up to, where",
    "goes on": "continues",
    "go on": "continue",
    "thereof": "of it",
    "whereof": "of which",
    "thereby": "which",
    "hither": "here",
}
_BETTER = re.compile(
    r"\b("
    + "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in sorted(BETTER, key=len, reverse=True))
    + r")\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"``.+?``|`[^`\n]+`")


class Docstring(NamedTuple):
    """A docstring where it is: file, line of its owner, name of its owner ("" for the module), text."""

    path: Path
    line: int
    owner: str
    text: str

    @property
    def opening(self) -> str:
        words = re.findall(r"[A-Za-z'’-]+", self.text.split("\n", 1)[0])
        return words[0].lower() if words else ""

    def dialect(self) -> list[str]:
        return words_of_dialect(self.text)


def words_of_dialect(text: str) -> list[str]:
    """Return the banned words of `text`, lower case, in order; text in backticks is not looked at."""
    return [" ".join(match.group(1).lower().split()) for match in _BETTER.finditer(_CODE.sub("", text))]


def sources(parts: Iterable[str] = PARTS) -> list[Path]:
    return sorted(path for part in parts for path in (ROOT / part).rglob("*.py") if "build" not in path.parts)


@cache
def docstrings(parts: tuple[str, ...] = (*PARTS, "bench")) -> list[Docstring]:
    """Return every docstring of these parts, in order."""
    found: list[Docstring] = []
    for path in sources(parts):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    found.append(Docstring(path, getattr(node, "lineno", 1), getattr(node, "name", ""), text))
    return found


#: Words that a test's name does not use: it names behaviour in the terms of the field.
NAME_DIALECT = frozenset(word for word in BETTER if " " not in word) | frozenset(
    [
        "whose",
        "whom",
        "stranger",
        "strangers",
        "envy",
        "guest",
        "guests",
        "hole",
        "holes",
        "mend",
        "mended",
        "tend",
        "word",
        "words",
    ]
)


def names_of_tests() -> list[tuple[Path, str]]:
    """Return (file, name) of every test function."""
    return [
        (path, node.name)
        for path in sources(("tests",))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]


def pages() -> list[Path]:
    """Return the Markdown pages that people read, except those generated from sources."""
    tracked = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    tracked += sorted((ROOT / "docs").rglob("*.md"))
    tracked += sorted(path for part in PARTS for path in (ROOT / part).rglob("README.md"))
    return tracked


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of a page outside of code blocks."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


class Language(NamedTuple):
    """Counts of docstrings by what is wrong with them, and of words of prose."""

    docstrings: int
    free_relatives: int
    no_antecedent: int
    verb_or_noun: int
    dialect: int
    prose_words: int
    prose_dialect: int

    @classmethod
    def measured(cls, parts: tuple[str, ...] = PARTS) -> "Language":
        found = docstrings(parts)
        openings = Counter(one.opening for one in found)
        relatives = sum(openings[word] for word in FREE_RELATIVES)
        orphans = sum(openings[word] for word in NO_ANTECEDENT)
        others = sum(openings[word] for word in OTHER_OPENINGS)
        lines = [text for page in pages() for _, text in prose(page)]
        return cls(
            docstrings=len(found),
            free_relatives=relatives,
            no_antecedent=orphans,
            verb_or_noun=len(found) - relatives - orphans - others,
            dialect=sum(bool(one.dialect()) for one in found),
            prose_words=sum(len(re.findall(r"\w+", text)) for text in lines),
            prose_dialect=sum(len(words_of_dialect(text)) for text in lines),
        )

    def share(self, count: int) -> float:
        return count / self.docstrings


class Sizes(NamedTuple):
    """Lines of files and functions, and the modules whose name is a gerund."""

    files: list[int]
    functions: list[int]
    gerunds: list[str]

    @classmethod
    @cache
    def measured(cls) -> "Sizes":
        files, functions, gerunds = [], [], []
        for path in sources():
            text = path.read_text()
            if path.name == "__init__.py" and len(text.splitlines()) < SMALL:
                continue  # a marker of a package, or its docstring
            files.append(len(text.splitlines()))
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
            if re.fullmatch(r"[a-z_]*ing", path.stem) and path.stem not in NOUNS_IN_ING:
                gerunds.append(str(path.relative_to(ROOT)))
        return cls(sorted(files), sorted(functions), gerunds)


#: Nouns of the field that end like a gerund.
NOUNS_IN_ING = frozenset(
    {
        "packing",
        "sharing",
        "scheduling",
        "ordering",
        "timing",
        "ping",
        "string",
        "setting",
        "ring",
        "billing",
        "pending",
        "tracing",
    }
)


@cache
def repeated_classes() -> dict[str, list[str]]:
    """Return {class name: the files that define it} for every public class name that is defined more than once."""
    where: dict[str, list[str]] = {}
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in sorted(where.items()) if len(paths) > 1}


def lines_of(paths: Iterable[str]) -> int:
    """Return the lines of Python files, and of those in folders."""
    found = [ROOT / path for path in paths]
    files = [file for path in found for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return sum(len(file.read_text().splitlines()) for file in files)


def skipped_statements() -> int:
    """Return the number of statements, tests and benchmarks included, that the formatter leaves alone."""
    return sum(
        len(re.findall(r"# fmt: skip$", path.read_text(), re.MULTILINE)) for path in sources((*PARTS, "bench", "tests"))
    )


def _percentile(values: list[int], share: float) -> int:
    return values[min(len(values) - 1, int(len(values) * share))]


def table() -> str:
    """Return the measurements as a Markdown table."""
    sizes, language, repeated = Sizes.measured(), Language.measured(), repeated_classes()
    worst = sorted(((len(paths), name) for name, paths in repeated.items()), reverse=True)[:8]
    rows = [
        ("source files: number, lines median / p90 / max", f"{len(sizes.files)}, {_summary(sizes.files)}"),
        (f"files under {SMALL} lines", f"{sum(lines < SMALL for lines in sizes.files)}"),
        ("functions: lines median / p90 / max", _summary(sizes.functions)),
        ("docstrings", f"{language.docstrings}"),
        ("docstrings that open with What/Who/Whether/Which/How...", f"{language.share(language.free_relatives):.1%}"),
        ("docstrings that open with It/Its/One/Of/As/Those...", f"{language.share(language.no_antecedent):.1%}"),
        ("docstrings that open with a verb or a noun", f"{language.share(language.verb_or_noun):.1%}"),
        ("docstrings with a word of the list", f"{language.share(language.dialect):.1%}"),
        ("the same words per 1,000 in Markdown", f"{1000 * language.prose_dialect / language.prose_words:.2f}"),
        ("modules named with a gerund", f"{len(sizes.gerunds)}"),
        (
            "class names defined more than once",
            f"{len(repeated)} ({', '.join(f'{name} {count}' for count, name in worst)})",
        ),
        ("statements that the formatter skips", f"{skipped_statements()}"),
        (f"lines that explain why a job waits (goal {WHY_GOAL:,}), and of their types", _why_lines()),
    ]
    return "\n".join(["| measured | today |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _why_lines() -> str:
    parts = ", ".join(f"{path.split('/')[-3 if path.startswith('services') else 0]} {lines_of([path])}" for path in WHY)
    return f"{lines_of(WHY):,} ({parts}), {lines_of(WHY_TYPES)}"


def _summary(values: list[int]) -> str:
    return f"{statistics.median(values):.0f} / {_percentile(values, 0.9)} / {values[-1]}"


def offences() -> Iterator[str]:
    """Yield a line for each docstring and line of prose that breaks the rule: place, what, and the better word."""
    for one in [*docstrings(), *docstrings(("tests",))]:
        place = f"{one.path.relative_to(ROOT)}:{one.line} {one.owner}".rstrip()
        first = one.text.split("\n", 1)[0]
        if one.opening in FREE_RELATIVES | NO_ANTECEDENT:
            yield f"{place}: opens with {one.opening!r}; begin with a verb or a noun: {first}"
        for word in one.dialect():
            yield f"{place}: {word!r}; better: {BETTER[word]}: {first}"
    for page in pages():
        for number, text in prose(page):
            for word in words_of_dialect(text):
                yield f"{page.relative_to(ROOT)}:{number}: {word!r}; better: {BETTER[word]}: {text.strip()}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.house.measure", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print every place that breaks the language rule")
    parser.add_argument("--classes", action="store_true", help="print every class name that is defined more than once")
    options = parser.parse_args()
    if options.list:
        print("\n".join(offences()))
    elif options.classes:
        print("\n".join(f"{name}: {', '.join(paths)}" for name, paths in repeated_classes().items()))
    else:
        print(table())


if __name__ == "__main__":
    main()
