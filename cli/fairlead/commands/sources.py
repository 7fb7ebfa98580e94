"""Sources of a job: a file, a script, or the words after `--`."""

import sys
from pathlib import Path

from fairlead import jobfile
from fairlead.errors import Refused

_FILE_SUFFIXES = (".yaml", ".yml", ".json")


def source(words: list[str], file: Path | None, *, dashes: bool) -> tuple[jobfile.Loaded, bool]:
    """The job files, and whether they belong to the current directory as scripts and commands do."""
    if file is not None:
        if words and not dashes:
            raise Refused(f'expected either --file or a script, found both ("{words[0]}")')
        loaded = jobfile.load(read_script(file), name=file.name)
        return (
            (loaded._replace(jobs=[{**job, "command": words} for job in loaded.jobs]), False)
            if words
            else (loaded, False)
        )
    if dashes:
        return jobfile.Loaded([{"command": words}], []), True
    if not words:
        raise Refused(
            "expected a script, a job file or `-- COMMAND`, found nothing", hint="fairlead submit -- echo hello"
        )
    path = Path(words[0])
    if not path.is_file():
        raise Refused(f'there is no file "{path}"', hint=f"for a command: fairlead submit -- {' '.join(words)}")
    text = read_script(path)
    if path.suffix not in _FILE_SUFFIXES and not text.startswith("#!") and "\n#SBATCH" not in f"\n{text}":
        raise Refused(
            f'{path}: expected a script that starts with "#!", or a .yaml or .json file',
            hint=f"for a command: fairlead submit -- {' '.join(words)}",
        )
    return jobfile.load(text, name=path.name, arguments=words[1:]), path.suffix not in _FILE_SUFFIXES


def read_script(path: Path, limit: int = jobfile.FILE_BYTES_MAX) -> str:
    """A file's text ("-": stdin), cut one byte over the limit. Raises Refused."""
    try:
        raw = sys.stdin.buffer.read(limit + 1) if str(path) == "-" else _head(path, limit)
        return raw.decode()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{path}: expected text in UTF-8, found other bytes at {error.start}") from error


def _head(path: Path, limit: int) -> bytes:
    """Return the start of a file, up to one byte over the limit: enough to detect that the file is too large."""
    with path.open("rb") as file:
        return file.read(limit + 1)
