"""Job files as people bring them, turned into Fairlead's own job files (plain values, not yet checked); and sources of a
job: a file, a script, or the words after `--`.

Takes Fairlead YAML or JSON (several documents are several jobs), a script with `#SBATCH` lines
(`sbatch.py`), or a Kubernetes `batch/v1` Job (`kubernetes_job.py`). Words that Fairlead does not follow come back
as notes where they change nothing about the job, and else as `unkept`, which `require_kept` refuses. Pure.
Start at `load`. Checking is `check`, by the same decoder that the gateway uses.
"""

import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from fairlead.errors import InputRefused
from fairlead.jobfile import kubernetes_job, sbatch
from fairlead_schemas.jobfile import job_spec, resolve
from fairlead_schemas.units.validation import InvalidJob

FILE_BYTES_MAX = job_spec.SPEC_BYTES_MAX
DOCUMENTS_MAX = 1000

type Document = dict[str, Any]


class Loaded(NamedTuple):
    """Job files found in one text, remarks about them, and words that cannot be kept: {name: why, or what to do instead}."""

    jobs: list[Document]
    notes: list[str]
    unkept: Mapping[str, str] = {}


def require_kept(unkept: Mapping[str, str], ignore: Collection[str]) -> list[str]:
    """Return a note for each ignored word. Raises Refused naming the words that cannot be kept and are not ignored.

    `ignore`: names as in `unkept`, with or without leading dashes; "all" ignores every one.
    """
    ignored = {name.lstrip("-") for name in ignore}
    left = {name: why for name, why in unkept.items() if not ignored & {name, "all"}}
    if left:
        lines = [f"  {name}: {why}" for name, why in left.items()]
        names = " ".join(f"--ignore {name}" for name in left)
        raise InputRefused(
            "\n".join(["the job asks for what cannot be kept here; nothing was submitted", *lines]),
            hint=f"to submit without: {names}",
        )
    return [f"{name} is IGNORED: {why}" for name, why in unkept.items()]


def load(text: str, *, name: str, arguments: list[str] | None = None) -> Loaded:
    """Read one file. `name` is its base name, `arguments` the words after a script's name.

    Raises Refused saying what was expected and what was found.
    """
    size = len(text.encode())
    if size > FILE_BYTES_MAX:
        raise InputRefused(
            f"{name}: expected at most {FILE_BYTES_MAX} bytes, found {size}",
            hint="keep scripts and data in files that the job reads",
        )
    if sbatch.is_script(text):
        found = sbatch.read(text, name=name, arguments=arguments or [])
        return Loaded([found.job], [f"{name}: {note}" for note in found.notes], found.unkept)
    if arguments:
        raise InputRefused(f'{name}: arguments ("{arguments[0]}" …) belong to a script, and this is a job file')
    jobs: list[Document] = []
    notes: list[str] = []
    unkept: dict[str, str] = {}
    for document in _documents(text, name):
        if kubernetes_job.is_job(document):
            found = kubernetes_job.read(document)
            jobs.append(found.job)
            notes += [f"{name}: {note}" for note in found.notes]
            unkept |= found.unkept
        else:
            jobs.append(document)
    return Loaded(jobs, notes, unkept)


def check(job: Document) -> job_spec.JobSpec:
    """The job file as the gateway would read it. Raises Refused naming every field that is wrong."""
    try:
        spec = job_spec.job_from(job)
        resolve.resolve(spec, command_id="dry-run", user="")
    except InvalidJob as error:
        lines = [f"{e.field}: {e.message}" if e.field else e.message for e in error.errors]
        raise InputRefused("\n  ".join(["the job file is not valid", *lines])) from error
    return spec


def canonical(spec: job_spec.JobSpec) -> Document:
    """The job file with its defaults left out: what the log will carry."""
    return msgspec.json.decode(job_spec.canonical(spec))


def merge(job: Document, flags: Document) -> Document:
    """Flags win over the file; maps are merged one level deep, so `--gpus` leaves the file's memory alone."""
    merged = dict(job)
    for key, value in flags.items():
        there = merged.get(key)
        merged[key] = {**there, **value} if isinstance(there, dict) and isinstance(value, dict) else value
    return merged


def read_yaml(text: str, name: str) -> list[Any]:
    """Every document of a YAML (or JSON) text, by the safe loader below. Raises Refused."""
    try:
        documents = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: an escape that names no character
        raise InputRefused(f"{name}: expected YAML or JSON: {_what_is_wrong(error)}") from error
    if len(documents) > DOCUMENTS_MAX:
        raise InputRefused(f"{name}: expected at most {DOCUMENTS_MAX} documents, found {len(documents)}")
    return documents


def _what_is_wrong(error: Exception) -> str:
    """Return one line with the fault and its place in the text. YAML's excerpt is left out: it needs lines of its own."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and error.problem_mark is not None:
        problem = f"{error.context}: {error.problem}" if error.context else error.problem
        return f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {problem}"
    return " ".join(str(error).replace('in "<unicode string>", ', "").split()) or "nested too deeply"


def _documents(text: str, name: str) -> list[Document]:
    documents = read_yaml(text, name)
    if len(documents) == 1 and isinstance(documents[0], list):
        documents = documents[0]
    for document in documents:
        if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
            raise InputRefused(f"{name}: expected a job file (fields and values), found {type(document).__name__}")
    if not documents:
        raise InputRefused(f"{name}: expected a job file, found nothing")
    return documents


#: Characters of an integer: 20 digits and a sign.
INTEGER_CHARS_MAX = 21
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")


class _Loader(yaml.SafeLoader):
    """YAML's safe loader without aliases (one line can grow to gigabytes) and without YAML 1.1's surprises.

    `2:00` stays text (not 120), `no` stays text (not False), times stay text, and `0.5` stays text,
    because quantities are read by our own parsers, exactly. A key given twice is refused.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        if problem := _unacceptable(event):
            raise yaml.MarkedYAMLError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int):
                raise yaml.MarkedYAMLError(None, None, "expected a plain word as a key", key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(None, None, f'the field "{key}" is given twice', key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _unacceptable(event: Any) -> str:
    """Return why a node is refused before it is read; "" if it is accepted."""
    if isinstance(event, yaml.AliasEvent):
        return "aliases (*name) are not accepted"
    if getattr(event, "tag", None) not in (None, "!", "tag:yaml.org,2002:str"):
        return f"tags such as {event.tag[-40:]} are not accepted: types follow from the field"
    if isinstance(event, yaml.ScalarEvent):
        if event.style is None and len(event.value) > INTEGER_CHARS_MAX and _INTEGER.match(event.value):
            return "expected a number of at most 64 bits"
        if any("\ud800" <= char <= "\udfff" for char in event.value):
            return "expected text, found half of a character (a lone surrogate)"
    return ""


def _resolve_plainly() -> None:
    _Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"(?:true|false)\Z"), list("tf"))
    _Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
    _Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:~|null|)\Z"), ["~", "n", ""])


_resolve_plainly()


_FILE_SUFFIXES = (".yaml", ".yml", ".json")


def source(words: list[str], file: Path | None, *, dashes: bool) -> tuple[Loaded, bool]:
    """The job files, and whether they belong to the current directory as scripts and commands do."""
    if file is not None:
        if words and not dashes:
            raise InputRefused(f'expected either --file or a script, found both ("{words[0]}")')
        loaded = load(read_script(file), name=file.name)
        return (
            (loaded._replace(jobs=[{**job, "command": words} for job in loaded.jobs]), False)
            if words
            else (loaded, False)
        )
    if dashes:
        return Loaded([{"command": words}], []), True
    if not words:
        raise InputRefused(
            "expected a script, a job file or `-- COMMAND`, found nothing", hint="fairlead submit -- echo hello"
        )
    path = Path(words[0])
    if not path.is_file():
        raise InputRefused(f'there is no file "{path}"', hint=f"for a command: fairlead submit -- {' '.join(words)}")
    text = read_script(path)
    if path.suffix not in _FILE_SUFFIXES and not text.startswith("#!") and "\n#SBATCH" not in f"\n{text}":
        raise InputRefused(
            f'{path}: expected a script that starts with "#!", or a .yaml or .json file',
            hint=f"for a command: fairlead submit -- {' '.join(words)}",
        )
    return load(text, name=path.name, arguments=words[1:]), path.suffix not in _FILE_SUFFIXES


def read_script(path: Path, limit: int = FILE_BYTES_MAX) -> str:
    """A file's text ("-": stdin), cut one byte over the limit. Raises Refused."""
    try:
        raw = sys.stdin.buffer.read(limit + 1) if str(path) == "-" else _head(path, limit)
        return raw.decode()
    except OSError as error:
        raise InputRefused(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputRefused(f"{path}: expected text in UTF-8, found other bytes at {error.start}") from error


def _head(path: Path, limit: int) -> bytes:
    """Return the start of a file, up to one byte over the limit: enough to detect that the file is too large."""
    with path.open("rb") as file:
        return file.read(limit + 1)
