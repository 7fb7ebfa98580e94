"""The synchronous client, made of the asynchronous one by replacing words, so that neither has a request that the other lacks.

`make docs` writes its files, and `--check` only names those that are out of date. Start at `files`.
"""

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parents[1] / "cli" / "fairlead" / "client"
NOTE = "# Made by docs/synchronous.py of {source}; `make docs` writes it again.\n"

#: In this order.
_WORDS = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\ba(close|read|iter_bytes|iter_sse)\(", r"\1("),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basynchronous\b", "synchronous"),
    (r"\basync_link\b", "sync_link"),
)


def files() -> dict[Path, str]:
    """Return {path: text} of the synchronous client's files."""
    sources = sorted(path for path in (CLIENT / "asynchronous").glob("*.py") if path.name != "__init__.py")
    return {CLIENT / "synchronous" / source.name: _formatted(source) for source in sources}


def _formatted(source: Path) -> str:
    text = NOTE.format(source=f"asynchronous/{source.name}") + synchronous(source.read_text())
    ruff = Path(sys.executable).with_name("ruff")
    for words in (["check", "--quiet", "--select", "I,UP028,UP034", "--fix", "--unsafe-fixes"], ["format"]):
        line = [str(ruff), *words, "--stdin-filename", str(CLIENT / "synchronous" / source.name), "-"]
        text = subprocess.run(line, input=text, capture_output=True, text=True, check=True).stdout
    return text


def synchronous(text: str) -> str:
    """Return asynchronous source as synchronous source."""
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    return text


def out_of_date() -> list[Path]:
    """Return the files that differ from what the asynchronous client makes."""
    return [path for path, text in files().items() if not path.is_file() or path.read_text() != text]


def main(arguments: list[str]) -> int:
    """Write, or with --check name what is out of date."""
    stale = out_of_date()
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(CLIENT.parents[2])} is out of date: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path, text in files().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
