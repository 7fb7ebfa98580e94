"""The part of requirements.lock that one extra needs, hashes included: `python deploy/lock_for.py queue`.

There is one lock file; images must not carry what other services need. The lock's own "via" comments say
who needs whom. "build" is what building the wheel needs, "all" what all services need. Runs on a bare Python.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def normal(name: str) -> str:
    """A distribution's name as the lock file spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(lock: str) -> dict[str, str]:
    """{name: its lines in the lock, comments included}."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lock.splitlines():
        if line and not line.startswith((" ", "#")):
            current = found.setdefault(normal(line.partition("==")[0]), [])
        current.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def needed_by(entry: str) -> set[str]:
    """Names in an entry's "via" comments."""
    comments = entry.partition("# via")[2]
    return {normal(name) for name in re.findall(r"^\s*#?\s+([A-Za-z0-9][A-Za-z0-9._-]*)", comments, re.MULTILINE)}


def wanted(project: dict[str, Any], extra: str) -> set[str]:
    """Names that pyproject.toml asks for: the base and one extra; for "build", the build's."""
    if extra == "build":
        lines = ["hatchling"]
    else:
        metadata = project["project"]
        lines = [*metadata["dependencies"], *_lines_of(metadata["optional-dependencies"], metadata["name"], extra)]
    return {normal(match[0]) for line in lines if (match := _NAME.match(line))}


def _lines_of(extras: dict[str, list[str]], own_name: str, extra: str) -> list[str]:
    """Requirements of an extra. Where it names other extras of this distribution, it has theirs."""
    lines: list[str] = []
    for line in extras[extra]:
        if line.startswith(f"{own_name}["):
            others = line.removeprefix(f"{own_name}[").removesuffix("]").split(",")
            lines += [each for other in others for each in _lines_of(extras, own_name, other)]
        else:
            lines.append(line)
    return lines


def closure(locked: dict[str, str], names: set[str]) -> set[str]:
    """`names` and everything that they need, by the lock. Raises KeyError for a name that is not locked."""
    for name in names:
        _ = locked[name]
    while more := {name for name, entry in locked.items() if name not in names and needed_by(entry) & names}:
        names = names | more
    return names


def main(extra: str) -> None:
    """Print the part."""
    locked = entries((ROOT / "requirements.lock").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = closure(locked, wanted(project, extra))
    print("\n".join(locked[name] for name in sorted(names)))


if __name__ == "__main__":
    main(sys.argv[1])
