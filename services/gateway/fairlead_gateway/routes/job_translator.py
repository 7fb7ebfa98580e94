"""Job files turned into the bytes of submit commands, quickly. Pure.

Equal bodies from one user mean equal commands except for id and key. The translation is kept as the two halves
around the id, so that a body seen before costs one lookup instead of a decode and a resolve. What a new body has in
common with earlier ones is not resolved again (`jobfile/alike.py`). The halves are exactly what
`encode_command(resolve(decode_job(body)))` gives; a test holds that.
"""

from typing import NamedTuple

import msgspec

from fairlead_schemas.jobfile.agent_fields import volumes_of
from fairlead_schemas.jobfile.alike import JobResolver
from fairlead_schemas.jobfile.job_spec import JobSpec
from fairlead_schemas.jobfile.resolve import decode_and_check
from fairlead_schemas.jobfile.service_file import SUBMITTED_AS_JOB
from fairlead_schemas.units.image_names import Registries
from fairlead_schemas.units.validation import FieldError, InvalidJob
from fairlead_schemas.wire.commands import digest_of

#: Translations in a generation (two are kept), and the largest body worth keeping.
GENERATION = 2048
KEPT_BODY_BYTES_MAX = 4096

_encode = msgspec.json.Encoder(order="deterministic").encode


class Submission(NamedTuple):
    """A submit command's bytes around its id, and the digest of its spec."""

    before: bytes
    after: bytes
    digest: str
    #: The job file names an image.
    has_image: bool = False
    #: The first field of the job file that only containers can give; "" for none.
    needs_container: str = ""
    #: Parts of the job file on which a right depends: queue, project, jobs on which it depends.
    queue: str = ""
    project: str = ""
    depends_on: tuple[str, ...] = ()
    #: The directory that goes with it, by name; "" for none.
    sync: str = ""
    #: It names volumes: who may have them is to be looked up.
    has_volumes: bool = False

    def command(self, command_id: str, key: str = "", authority_field: bytes = b"") -> bytes:
        """The encoded SubmitJob. `key` (hex, "" for none) is the idempotency key bound to its user. `authority_field`: of the sender."""
        if not key and not authority_field:
            return b"".join((self.before, command_id.encode(), self.after))
        tail = f',"key":"{key}","digest":"{self.digest}"' if key else ""
        return b"".join((self.before, command_id.encode(), self.after[:-1], tail.encode(), authority_field, b"}"))


class JobTranslator:
    """Bodies in, submissions out; remembers the newest distinct ones, in two generations."""

    def __init__(self, registries: Registries | None = None) -> None:
        """`registries`: as for `resolve`."""
        self._registries = registries
        self._resolver = JobResolver(registries)
        self._young: dict[tuple[str, bytes], Submission] = {}
        self._old: dict[tuple[str, bytes], Submission] = {}

    def translate(self, user: str, body: bytes) -> Submission:
        """Translate one job file (JSON). Raise InvalidJob naming each bad field."""
        found = self._young.get((user, body))
        if found is None:
            found = self._old.get((user, body)) or self._translate(user, body)
            if len(body) <= KEPT_BODY_BYTES_MAX:
                self._keep(user, body, found)
        return found

    def _keep(self, user: str, body: bytes, submission: Submission) -> None:
        if len(self._young) >= GENERATION:
            self._old, self._young = self._young, {}
        self._young[user, body] = submission

    def _translate(self, user: str, body: bytes) -> Submission:
        return self.submission(user, self.spec(body))

    def spec(self, body: bytes) -> JobSpec:
        """Decode one job file (JSON). Raise InvalidJob naming each bad field."""
        return decode_and_check(body, self._registries)

    def submission(self, user: str, spec: JobSpec) -> Submission:
        """Translate one job file without remembering it. Raise InvalidJob."""
        if spec.service is not None:
            raise InvalidJob([SUBMITTED_AS_JOB])
        command = self._resolver.resolve(spec, user)
        before, marker, after = _encode(command).partition(b'"id":"')
        return Submission(
            before + marker,
            after,
            digest_of(bytes(command.spec))[:16],
            bool(spec.image),
            container_field(spec),
            command.queue,
            command.project,
            tuple(one.job for one in command.after),
            spec.sync,
            bool(spec.volumes),
        )


def container_field(spec: JobSpec, *, several_users: bool = True) -> str:
    """Return the first field of a job file that only nodes with containers can follow, "" for none. `several_users`: without containers
    several people's processes would share a node, where each could open the others' volumes.
    """
    if any(several_users or not each.made for each in volumes_of(spec.volumes).values()):
        return "volumes"
    return "secrets" if spec.secrets else ""


def runtime_error(has_image: bool, needs_container: str, runtimes: frozenset[str]) -> FieldError | None:
    """Return the error of a job that no node that has joined could begin: one without an image where all run containers,
    one with volumes or secrets where all run plain processes."""
    if not has_image and runtimes == {"docker"}:
        message = (
            "expected an image: every node of this cluster runs containers; --image NAME of fairlead submit names one"
        )
        return FieldError(field="image", message=message)
    if needs_container and runtimes == {"process"}:
        message = (
            f"expected none: {needs_container} need containers, and every node of this cluster runs plain processes"
        )
        return FieldError(field=needs_container, message=message)
    return None


def image_warning(has_image: bool, runtimes: frozenset[str]) -> str:
    """Return the warning about an image that no node that has joined would use, else ""."""
    if not has_image or not runtimes or "docker" in runtimes or "hollow" in runtimes:
        return ""
    return "image is ignored: every node of this cluster runs plain processes with the node's own files"
