"""Volumes and secrets of a job file: their meaning, and the reasons for refusal; and the job file's `output: {keep: 7d,
max: 1Gi}`: how long, and how much of, a run's output stays on its node. Pure.

The gateway refuses by these rules at submit. A node's agent checks them again before it starts anything,
because the agent is responsible for its own mounts, regardless of the order's sender.

Only the agent acts on these fields. It finds them in the job file, so no command and no event carries them; a submit
checks their range. The settings of the node are upper bounds for both.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fairlead_schemas.jobfile.job_spec import AliveWords, AppWords, OutputWords, SecretWords, VolumeWords
from fairlead_schemas.jobfile.outputs import Outputs
from fairlead_schemas.policies import apps
from fairlead_schemas.policies.apps import PROFILES, AliveCheck, App, parse_alive
from fairlead_schemas.units import quantities
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.units.timestamps import DAY_NS, MINUTE_NS, SECOND_NS
from fairlead_schemas.units.validation import ErrorCollector, FieldError
from fairlead_schemas.wire import trees

VOLUMES_MAX = 32
SECRETS_MAX = 32
PATH_CHARS_MAX = 255
SECRETS_DIRECTORY = "/run/secrets"
#: Where a container has its job's own directory, unless `workdir` says another place.
WORK_IN_CONTAINER = "/work"
#: Jobs that name no project have their volumes and secrets here.
DEFAULT_PROJECT = "default"
#: Closed paths, together with everything below them: the kernel's and the engine's, Fairlead's own, and paths
#: by which NVIDIA's container toolkit can be asked for devices.
CLOSED_PATHS = (
    "/proc",
    "/sys",
    "/dev",
    "/etc/fairlead",
    "/run/nvidia-container-devices",
    "/var/run/nvidia-container-devices",
)
#: Not these, but below them: scratch space of every container.
TAKEN_PATHS = ("/", "/tmp", "/run", "/var/run", SECRETS_DIRECTORY, "/etc")  # noqa: S108 -- mount points in a container

PORT_MAX = 65535

_SOCKET = re.compile(rf"(?=.{{2,{apps.SOCKET_CHARS_MAX}}}\Z)(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)+\Z", re.ASCII)
_PATH = re.compile(r"(?:/[A-Za-z0-9._@+-]+)+\Z", re.ASCII)


type Volumes = Sequence[str | VolumeWords] | Mapping[str, str]


class Volume(NamedTuple):
    """A volume as it is to be mounted."""

    name: str
    path: str
    read_only: bool
    create: bool
    #: Of a volume of the cluster: the sequence at which it was made.
    made: int = 0


class Secret(NamedTuple):
    """A secret, and the file that will hold it."""

    name: str
    path: str


def volume_of(words: str | VolumeWords) -> Volume:
    """Any text is understood; whether it may be so is for `faults`."""
    if isinstance(words, VolumeWords):
        return Volume(words.name, words.mountPath, words.readOnly, words.create, words.made)
    name, _, path = words.partition(":")
    path, colon, mode = path.partition(":")
    # Any mode except "ro" and "rw" stays in the path, and the path is then refused because of its colon.
    return Volume(name, path if mode in ("", "ro", "rw") else path + colon + mode, mode == "ro", create=False)


def volumes_of(words: Volumes) -> dict[str, Volume]:
    """Return {field: volume} of a job file's `volumes`, in their order."""
    if isinstance(words, dict):
        return {f"volumes.{name[:80]}": volume_of(f"{name}:{path}") for name, path in words.items()}
    return {f"volumes[{at}]": volume_of(each) for at, each in enumerate(words)}


def secret_of(words: str | SecretWords) -> Secret:
    """The same of a secret."""
    name, path = (words, "") if isinstance(words, str) else (words.name, words.mountPath)
    return Secret(name, path or f"{SECRETS_DIRECTORY}/{name}")


def project_directory(project: str) -> str:
    """Return the directory for a project's volumes and secrets. Meaningless for a project that `faults` refuses."""
    return project or DEFAULT_PROJECT


def mount_faults(volumes: Volumes, secrets: Sequence[str | SecretWords], project: str) -> Iterator[FieldError]:
    """Everything wrong with them, by field."""
    if (volumes or secrets) and not is_token(project_directory(project)):
        message = f'expected 1 to 63 of a-z 0-9 _ - for a job with volumes or secrets, found "{project[:80]}"'
        yield FieldError(field="project", message=message)
    yield from _too_many("volumes", len(volumes), VOLUMES_MAX)
    yield from _too_many("secrets", len(secrets), SECRETS_MAX)
    given = [*volumes_of(volumes).items()][:VOLUMES_MAX]
    asked = [(f"secrets[{at}]", secret_of(each)) for at, each in enumerate(secrets[:SECRETS_MAX])]
    named = [(field, each.name, each.path) for field, each in (*given, *asked)]
    for field, name, path in named:
        yield from _of_one(field, name, path)
    yield from _of_all(named)


def work_faults(sync: str, has_outputs: bool, workdir: str, image: str) -> Iterator[FieldError]:
    """Everything wrong with the directory of its own that a job with `sync` or `outputs` has."""
    if sync and trees.parse_tree_name(sync) is None:
        message = (
            f'expected "sha256:" and 64 hex digits, which fairlead submit puts for a directory, found {sync[:80]!r}'
        )
        yield FieldError(field="sync", message=message)
    if not workdir or not (sync or has_outputs):
        return
    if not image:
        message = "leave it out with sync and outputs: a job without an image then runs in a directory of its own"
        yield FieldError(field="workdir", message=message)
    elif fault := path_fault(workdir):
        yield FieldError(
            field="workdir", message=f"{fault}, found {workdir[:80]!r}: its own directory is mounted there"
        )


def app_of(words: str | AppWords) -> App | None:
    """Return the application of a job file; None for a job without one, and for a profile that `app_faults` refuses."""
    if isinstance(words, str):
        words = AppWords(profile=words)
    profile = PROFILES.get(words.profile)
    if profile is None:
        return None
    ready = profile.ready if words.ready is None else words.ready
    background = (*profile.background, *words.background)
    return App(profile, words.port, words.socket, ready, background, alive_of(words.alive))


def alive_of(words: AliveWords | None) -> AliveCheck | None:
    """Return the looks of a job file's words, None for none, and for words that `app_faults` refuses."""
    if words is None:
        return None
    try:
        every_s = -(-quantities.parse_duration(words.every) // SECOND_NS)
    except quantities.QuantityError:
        return None
    return parse_alive(AliveCheck(words.path, every_s, words.failures).text)


def app_faults(words: str | AppWords, kind: str) -> Iterator[FieldError]:
    """Everything wrong with the application of a job file."""
    if words == "":
        return
    if kind == "batch":
        yield FieldError(field="app", message="expected kind: session or kind: service with it, found kind: batch")
    field, name = ("app", words) if isinstance(words, str) else ("app.profile", words.profile)
    if name not in PROFILES:
        message = f'expected one of {", ".join(PROFILES)}, found "{name[:40]}"{did_you_mean(name, PROFILES)}'
        yield FieldError(field=field, message=message)
    if isinstance(words, str):
        return
    if not 0 <= words.port <= PORT_MAX:
        yield FieldError(field="app.port", message=f"expected 1 to {PORT_MAX}, found {words.port}")
    if words.socket and (not _SOCKET.match(words.socket) or words.port):
        message = f"expected an absolute path of at most {apps.SOCKET_CHARS_MAX} letters, digits and . _ - and no port, found {words.socket[:80]!r}"
        yield FieldError(field="app.socket", message=message)
    if words.alive is not None and alive_of(words.alive) is None:
        message = (
            f'expected a path such as "/health" or "", every from {apps.ALIVE_EVERY_S_MIN} s to {apps.ALIVE_EVERY_S_MAX} s, and 1 to '
            f"{apps.ALIVE_FAILURES_MAX} failures"
        )
        yield FieldError(field="app.alive", message=message)
    paths = [
        ("app.ready", words.ready or "/"),
        *((f"app.background[{at}]", each) for at, each in enumerate(words.background)),
    ]
    yield from _too_many("app.background", len(words.background), apps.BACKGROUND_PATHS_MAX)
    for path_field, path in paths[: apps.BACKGROUND_PATHS_MAX + 1]:
        if not apps.is_path(path):
            yield FieldError(field=path_field, message=f'expected a path such as "/health", found {path[:80]!r}')


def _too_many(field: str, found: int, most: int) -> Iterator[FieldError]:
    if found > most:
        yield FieldError(field=field, message=f"expected at most {most}, found {found}")


def _of_one(field: str, name: str, path: str) -> Iterator[FieldError]:
    if not is_token(name):
        message = f"expected 1 to 63 of a-z 0-9 _ -, found {name[:80]!r}"
        yield FieldError(field=f"{field}.name", message=message)
    if fault := path_fault(path):
        yield FieldError(field=f"{field}.mountPath", message=f"{fault}, found {path[:80]!r}")


def path_fault(path: str) -> str:
    """Return the reason for which a path may not be mounted; "" if it may."""
    if len(path) > PATH_CHARS_MAX or not _PATH.match(path) or posixpath.normpath(path) != path:
        return 'expected an absolute path such as "/data" of letters, digits and . _ @ + -, without "." and ".." parts'
    for closed in CLOSED_PATHS:
        if _within(path, closed):
            return f"expected a path outside of {closed}"
    return f"expected a path below {path}, which is taken" if path in TAKEN_PATHS else ""


def _of_all(named: Sequence[tuple[str, str, str]]) -> Iterator[FieldError]:
    """No two in one place, and none inside another: what is mounted there would be written to by the engine."""
    for at, (field, _, path) in enumerate(named):
        for other, _, above in named[:at]:
            if _within(path, above) or _within(above, path):
                message = f"expected paths apart from each other, found {path[:80]!r} and {above[:80]!r} ({other})"
                yield FieldError(field=f"{field}.mountPath", message=message)


def _within(path: str, other: str) -> bool:
    return path == other or path.startswith(other + "/")


KEEP_NS_MIN = MINUTE_NS
KEEP_NS_MAX = 365 * DAY_NS
#: Of stdout and of stderr, each. The agent ships 1 MiB of a file at a time, so a lower bound could cut what is not shipped yet.
MAX_MIB_MIN = 1
MAX_MIB_MAX = 2**20

KEEP, MAX = "output.keep", "output.max"
FILE_CHARS_MAX = 1024


class OutputBounds(NamedTuple):
    """What a job states for its own output: bounds (0: none in addition to those of the node), and files that are kept."""

    keep_ns: int = 0
    #: Of each of its two files.
    max_mib: int = 0
    #: True for a run in a directory of its own, and its outputs by name.
    work: bool = False
    outputs: Outputs = ()

    @property
    def age_s(self) -> float:
        """Seconds since the end of the run for which its output is kept; 0: no bound."""
        return self.keep_ns / SECOND_NS

    @property
    def bytes_max(self) -> int:
        """Bytes that are kept of the end of each file; 0: no bound."""
        return self.max_mib * 2**20


NODE_BOUNDS = OutputBounds()


def output_of(words: OutputWords, reading: ErrorCollector) -> OutputBounds:
    """Read the bounds of a job file; notes every value that is out of range."""
    for field, path in (("output.stdout", words.stdout), ("output.stderr", words.stderr)):
        if path and (len(path) > FILE_CHARS_MAX or not path.isprintable() or path.endswith("/")):
            reading.wrong(
                field, f"expected a file of at most {FILE_CHARS_MAX} printable characters, found {path[:80]!r}"
            )
    keep_ns = max_mib = 0
    if words.keep != "":
        keep_ns = reading.amount(quantities.parse_duration, words.keep, KEEP, KEEP_NS_MIN)
        if not KEEP_NS_MIN <= keep_ns <= KEEP_NS_MAX:
            reading.wrong(KEEP, f'expected a duration from 1m to 365d, found "{words.keep}"; {_DEFAULT}')
    if words.max != "":
        size = reading.amount(quantities.parse_bytes, words.max, MAX, MAX_MIB_MIN * 2**20)
        max_mib = -(-size // 2**20)
        if not MAX_MIB_MIN * 2**20 <= size <= MAX_MIB_MAX * 2**20:
            reading.wrong(MAX, f'expected a size from 1Mi to 1Ti, found "{words.max}"; {_DEFAULT}')
    return OutputBounds(keep_ns, max_mib)


def describe_output(bounds: OutputBounds) -> str:
    """Describe in one line how much output a node keeps of such a job."""
    size = f"the last {quantities.format_memory(bounds.max_mib)} of stdout and of stderr" if bounds.max_mib else ""
    age = f"for {quantities.format_duration(bounds.keep_ns)} after its end" if bounds.keep_ns else ""
    own = ", ".join(part for part in (size, age) if part)
    return f"{own}, or less where its node's settings are lower" if own else "as its node's settings have it"


_DEFAULT = "leave it out for the node's own bound"
