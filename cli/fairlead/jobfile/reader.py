"""Job files as people bring them, turned into Fairlead's own job files (plain values, not yet checked); and sources of a
job: a file, a script, or the words after `--`.

Takes Fairlead YAML or JSON (several documents are several jobs), a script with `#SBATCH` lines
(`sbatch.py`), Kubernetes objects (`kubernetes_job.py`), or tasks of SkyPilot and dstack (`foreign_tasks.py`). Words that Fairlead does not follow come back
as notes where they change nothing about the job, and else as `unkept`, which `require_kept` refuses. Pure.
Start at `load`. Checking is `check`, by the same decoder that the gateway uses.
"""

import copy
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fairlead.errors import InputRefused
from fairlead.jobfile import file_lines
from fairlead.jobfile.file_lines import Origin
from fairlead_schemas.jobfile import job_spec, resolve
from fairlead_schemas.units.validation import FieldError, InvalidJob

FILE_BYTES_MAX = job_spec.SPEC_BYTES_MAX

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


def load(text: str, *, name: str, arguments: list[str] | None = None, more: Sequence[tuple[str, str]] = ()) -> Loaded:
    """Read one file. `name` is its base name, `arguments` the words after a script's name, `more` options of sbatch over a script's own.

    Raises Refused saying what was expected and what was found.
    """
    size = len(text.encode())
    if size > FILE_BYTES_MAX:
        raise InputRefused(
            f"{name}: expected at most {FILE_BYTES_MAX} bytes, found {size}",
            hint="keep scripts and data in files that the job reads",
        )
    from fairlead.jobfile import sbatch  # a command needs no reader of files, and they cost a third of its submit

    if sbatch.is_script(text):
        found = sbatch.read(text, name=name, arguments=arguments or [], more=more, environ=os.environ)
        return Loaded([found.job], [f"{name}: {note}" for note in found.notes], found.unkept)
    if arguments:
        raise InputRefused(f'{name}: arguments ("{arguments[0]}" …) belong to a script, and this is a job file')
    return _load_documents(text, name)


def _load_documents(text: str, name: str) -> Loaded:
    from fairlead.jobfile import foreign_tasks, kubernetes_job, kubernetes_shapes

    documents = _documents(text, name)
    objects = [number for number, document in enumerate(documents) if kubernetes_job.is_job(document)]
    wrong = {number: kubernetes_shapes.mistakes(documents[number]) for number in objects}
    if any(wrong.values()):
        faulty = [(file_lines.with_origin({}, Origin(name, text, number)), found) for number, found in wrong.items()]
        raise file_lines.refusal("the file is not valid", faulty)
    found, notes = kubernetes_job.read_all([documents[number] for number in objects], objects)
    unkept: dict[str, str] = {}
    jobs: dict[int, list[Document]] = {}
    for one in found:
        origin = Origin(name, text, one.number, one.renamed)
        jobs.setdefault(one.number, []).append(file_lines.with_origin(one.job, origin))
        notes += one.notes
        several = f" (document {one.number + 1})" if len(documents) > 1 or len(found) > 1 else ""
        unkept |= {path: why + several for path, why in one.unkept.items()}
    for number, document in enumerate(documents):
        if number in objects:
            continue
        if foreign_tasks.is_task(document):
            task = foreign_tasks.read(document)
            jobs[number] = [file_lines.with_origin(task.job, Origin(name, text, number, task.renamed))]
            notes += task.notes
            unkept |= task.unkept
        else:
            jobs[number] = [file_lines.with_origin(document, Origin(name, text, number))]
    if not jobs:
        raise InputRefused(f"{name}: expected a job, found only objects that are none")
    ordered = [job for number in sorted(jobs) for job in jobs[number]]
    return Loaded(ordered, [f"{name}: {note}" for note in dict.fromkeys(notes)], unkept)


def check(job: Document) -> job_spec.JobSpec:
    """The job file as the gateway would read it. Raises Refused naming every field that is wrong."""
    return check_all([job])[0]


def check_all(jobs: Sequence[Document]) -> list[job_spec.JobSpec]:
    """All job files as the gateway would read them. Raises Refused naming every mistake of every one, with its line in the file."""
    specs: list[job_spec.JobSpec] = []
    faulty: list[tuple[Document, list[FieldError]]] = []
    for job in jobs:
        try:
            specs.append(resolve.convert_and_check(job))
            resolve.resolve(specs[-1], command_id="dry-run", user="")
        except InvalidJob as error:
            faulty.append((job, error.errors))
    if faulty:
        title = (
            "the job file is not valid" if len(jobs) == 1 else f"{len(faulty)} of {len(jobs)} job files are not valid"
        )
        raise file_lines.refusal(title, faulty)
    return specs


def canonical(spec: job_spec.JobSpec) -> Document:
    """The job file with its defaults left out: what the log will carry."""
    return msgspec.json.decode(job_spec.canonical(spec))


def merge(job: Document, flags: Document) -> Document:
    """Flags win over the file; maps are merged one level deep, so `--gpus` leaves the file's memory alone."""
    merged = copy.copy(job)
    for key, value in flags.items():
        there = merged.get(key)
        merged[key] = {**there, **value} if isinstance(there, dict) and isinstance(value, dict) else value
    return merged


def _documents(text: str, name: str) -> list[Document]:
    from fairlead.jobfile.yaml_text import read_yaml

    documents = read_yaml(text, name)
    if len(documents) == 1 and isinstance(documents[0], list):
        documents = documents[0]
    for document in documents:
        if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
            raise InputRefused(f"{name}: expected a job file (fields and values), found {type(document).__name__}")
    if not documents:
        raise InputRefused(f"{name}: expected a job file, found nothing")
    return documents


_FILE_SUFFIXES = (".yaml", ".yml", ".json")


def source(words: list[str], file: Path | None, *, dashes: bool) -> tuple[Loaded, bool]:
    """The job files, and whether they belong to the current directory as scripts and commands do."""
    if file is not None:
        if words and not dashes:
            raise InputRefused(f'expected either --file or a script, found both ("{words[0]}")')
        loaded = load(read_script(file), name=file.name)
        return (
            (loaded._replace(jobs=[merge(job, {"command": words}) for job in loaded.jobs]), False)
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
