"""Job files as people bring them, turned into Fairlead's own job files (plain values, not yet checked).

Takes Fairlead YAML or JSON (several documents are several jobs), a script with `#SBATCH` lines
(`sbatch.py`), or a Kubernetes `batch/v1` Job (`kubernetes_job.py`). Words that Fairlead does not follow come back
as notes where they change nothing about the job, and else as `unkept`, which `require_kept` refuses. Pure.
Start at `load`. Checking is `check`, by the same decoder that the gateway uses.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec
import yaml

from fairlead import kubernetes_job, sbatch
from fairlead.errors import Refused
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
        raise Refused(
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
        raise Refused(
            f"{name}: expected at most {FILE_BYTES_MAX} bytes, found {size}",
            hint="keep scripts and data in files that the job reads",
        )
    if sbatch.is_script(text):
        found = sbatch.read(text, name=name, arguments=arguments or [])
        return Loaded([found.job], [f"{name}: {note}" for note in found.notes], found.unkept)
    if arguments:
        raise Refused(f'{name}: arguments ("{arguments[0]}" …) belong to a script, and this is a job file')
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
        raise Refused("\n  ".join(["the job file is not valid", *lines])) from error
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
    except (yaml.YAMLError, RecursionError) as error:
        raise Refused(f"{name}: expected YAML or JSON: {_what_is_wrong(error)}") from error
    if len(documents) > DOCUMENTS_MAX:
        raise Refused(f"{name}: expected at most {DOCUMENTS_MAX} documents, found {len(documents)}")
    return documents


def _what_is_wrong(error: Exception) -> str:
    """Return one line with the fault and its place in the text. YAML's excerpt is left out: it needs lines of its own."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and error.problem_mark is not None:
        told = f"{error.context}: {error.problem}" if error.context else error.problem
        return f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {told}"
    return " ".join(str(error).replace('in "<unicode string>", ', "").split()) or "nested too deeply"


def _documents(text: str, name: str) -> list[Document]:
    documents = read_yaml(text, name)
    if len(documents) == 1 and isinstance(documents[0], list):
        documents = documents[0]
    for document in documents:
        if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
            raise Refused(f"{name}: expected a job file (fields and values), found {type(document).__name__}")
    if not documents:
        raise Refused(f"{name}: expected a job file, found nothing")
    return documents


class _Loader(yaml.SafeLoader):
    """YAML's safe loader without aliases (one line can grow to gigabytes) and without YAML 1.1's surprises.

    `2:00` stays text (not 120), `no` stays text (not False), times stay text, and `0.5` stays text,
    because quantities are read by our own parsers, exactly. A key given twice is refused.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.MarkedYAMLError(None, None, "aliases (*name) are not accepted", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int):
                raise yaml.MarkedYAMLError(None, None, "expected a plain word as a key", key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(None, None, f'the field "{key}" stands twice', key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _resolve_plainly() -> None:
    _Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"(?:true|false)\Z"), list("tf"))
    _Loader.add_implicit_resolver(
        "tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"), list("-+0123456789")
    )
    _Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:~|null|)\Z"), ["~", "n", ""])


_resolve_plainly()
