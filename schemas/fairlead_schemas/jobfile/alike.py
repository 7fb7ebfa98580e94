"""Resolution of many job files that are alike, quickly. Pure.

Jobs of one person mostly differ in their words, names and queues, while all else is equal: what it means is remembered
by its bytes, and only the rest is checked again. The result is exactly that of `resolve`; a test holds that.
"""

import msgspec

from fairlead_schemas.jobfile.job_spec import SPEC_BYTES_MAX, JobSpec, canonical
from fairlead_schemas.jobfile.resolve import name_of, own_faults, resolve, with_app
from fairlead_schemas.units.image_names import Registries
from fairlead_schemas.wire.commands import SubmitJob

#: Kinds of job files that are remembered, and the largest one worth it.
KINDS_MAX = 2048
KIND_BYTES_MAX = 4096

_NO_SPEC = msgspec.Raw(b"null")


class JobResolver:
    """Resolves job files; remembers what the fields mean in which they are alike."""

    def __init__(self, registries: Registries | None = None) -> None:
        """`registries`: as for `resolve`."""
        self._registries = registries
        #: {canonical job file without the fields that `own_faults` checks: a command without spec}
        self._kinds: dict[bytes, SubmitJob] = {}

    def resolve(self, spec: JobSpec, user: str) -> SubmitJob:
        """Return the command that submits this job, without id and key. Raise InvalidJob as `resolve` does."""
        spec = with_app(spec)
        kind = canonical(
            # The program's name stays: it may imply a launcher.
            msgspec.structs.replace(spec, command=spec.command[:1], args=[], name="", queue="", env={}, labels={})
        )
        alike = self._kinds.get(kind)
        body = canonical(spec) if alike is not None else b""
        if alike is None or len(body) > SPEC_BYTES_MAX or any(True for _ in own_faults(spec)):
            command = resolve(spec, command_id="", user=user, registries=self._registries)
            self._remember(kind, command)
            return command
        return msgspec.structs.replace(alike, user=user, name=name_of(spec), queue=spec.queue, spec=msgspec.Raw(body))

    def _remember(self, kind: bytes, command: SubmitJob) -> None:
        if len(kind) > KIND_BYTES_MAX:
            return
        if len(self._kinds) >= KINDS_MAX:
            self._kinds.clear()
        self._kinds[kind] = msgspec.structs.replace(command, spec=_NO_SPEC)
