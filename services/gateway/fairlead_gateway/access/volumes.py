"""Rights of jobs on volumes: at submit, where names become volumes, and at every start, where a node asks what a run may mount.

A name in a job file means the volume that its submitter may read. A name of no such volume stays what it is, a directory that nodes list, so
that an answer says nothing about a volume that the caller may not see. Start at `with_volumes` and `VolumeQuestions`.
"""

import msgspec

from fairlead_bus.port import Message
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.targets import volume_target
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow
from fairlead_gateway.views.storage import StoredRow
from fairlead_gateway.why.dominant_reason import row_or_array
from fairlead_schemas.jobfile.agent_fields import Volume, volumes_of
from fairlead_schemas.jobfile.job_spec import JobSpec, VolumeWords
from fairlead_schemas.policies.rights import Verb
from fairlead_schemas.policies.storage import ONE_NODE, STORAGE_LABEL
from fairlead_schemas.units.validation import FieldError, InvalidJob
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.volumes import (
    AskVolumes,
    VolumeGrant,
    VolumeGrants,
    decode_question,
    encode_volumes,
)

#: States of a job whose attempt has its nodes.
ON_NODES = frozenset({"placed", "running", "stopping"})


class _Named(msgspec.Struct):
    """Part of a job file."""

    volumes: list[str | VolumeWords] | dict[str, str] = []


_named = msgspec.json.Decoder(_Named)


def volumes_in(row: JobRow) -> tuple[Volume, ...]:
    """Return the cluster's volumes that a job names, in the order of its file."""
    spec = bytes(row.spec)
    if b'"made":' not in spec:
        return ()
    return tuple(each for each in volumes_of(_named.decode(spec).volumes).values() if each.made)


def with_volumes(views: Views, caller: Caller, spec: JobSpec) -> JobSpec:
    """Return the job file with what its volumes mean now: which of the names are the cluster's volumes, and that its nodes mount their
    classes. Raise InvalidJob for a volume that the caller may only read and the file would write.
    """
    if not spec.volumes:
        return spec
    words, needed, errors = list[str | VolumeWords](), list(spec.nodeAffinity), list[FieldError]()
    for field, volume in volumes_of(spec.volumes).items():
        row = None if volume.create else _readable(views, caller, volume.name)
        words.append(
            VolumeWords(
                name=volume.name,
                mountPath=volume.path,
                readOnly=volume.read_only,
                create=volume.create,
                made=0 if row is None else row.sequence,
            )
        )
        if row is None:
            continue
        if fault := _fault(views, caller, spec, volume, row):
            errors.append(FieldError(field=field, message=fault))
        kind = views.storage.classes[row.storage_class]
        label = f"{STORAGE_LABEL}{kind.name}={kind.backend}"
        if label not in needed:
            needed.append(label)
    if errors:
        raise InvalidJob(errors)
    return msgspec.structs.replace(spec, volumes=words, nodeAffinity=needed)


def _readable(views: Views, caller: Caller, name: str) -> StoredRow | None:
    row, target = views.storage.volumes.get(name), volume_target(views, name)
    return row if row is not None and target is not None and caller.may("volume:read", target) else None


def _fault(views: Views, caller: Caller, spec: JobSpec, volume: Volume, row: StoredRow) -> str:
    """Return the reason for which a job may not have a volume that its submitter may read; "" where it may."""
    target = volume_target(views, volume.name)
    assert target is not None
    if not volume.read_only and not caller.may("volume:write", target):
        return f'you may read volume {volume.name} and not write it: expected "{volume.name}:{volume.path}:ro"'
    if not row.uid:
        return f"volume {volume.name} was made before nodes mounted volumes: make another one"
    kind = views.storage.classes[row.storage_class]
    if kind.backend in ONE_NODE and spec.nodes != 1:
        return f"expected a job on one node: a volume of class {kind.name} ({kind.backend}) is on one node at a time"
    return ""


class VolumeQuestions:
    """Answers of one gateway to nodes: what the volumes of a run are now, and whether its user may still have them."""

    def __init__(self, views: Views, *, has_sign_on: bool) -> None:
        self._views, self._has_sign_on = views, has_sign_on

    async def answer(self, message: Message) -> bytes:
        """Answer a node. A question that cannot be read, or about a run that is not on that node, is answered as one about an unknown run."""
        try:
            question = decode_question(message.payload)
        except msgspec.MsgspecError:
            return encode_volumes(VolumeGrants(unknown=True))
        return encode_volumes(self.grants(subjects.node_of(message.subject), question))

    def grants(self, node: str, question: AskVolumes) -> VolumeGrants:
        """Return the volumes of a run on a node."""
        row = self._views.jobs.rows.get(question.job)
        placed = row is not None and row.state in ON_NODES and row.attempt == question.attempt
        if row is None or not placed or not self._is_on(row, node, question.rank):
            return VolumeGrants(unknown=True)
        file = row if not row.array_id else row_or_array(self._views, row.array_id)
        found = list[VolumeGrant]()
        for volume in () if file is None else volumes_in(file):
            refusal = self._refusal(row.user, volume)
            if refusal:
                return VolumeGrants(refused=refusal, several_users=self._has_sign_on)
            stored = self._views.storage.volumes[volume.name]
            found.append(
                VolumeGrant(
                    name=stored.name,
                    made=stored.sequence,
                    storage_class=stored.storage_class,
                    backend=self._views.storage.classes[stored.storage_class].backend,
                    quota_bytes=stored.quota_bytes,
                    uid=stored.uid,
                    write=not volume.read_only,
                )
            )
        return VolumeGrants(volumes=found, several_users=self._has_sign_on)

    @staticmethod
    def _is_on(row: JobRow, node: str, rank: int) -> bool:
        return 0 <= rank < len(row.parts) and row.parts[rank].node == node

    def _refusal(self, user: str, volume: Volume) -> str:
        """Return the reason for which a user's run may not have a volume now; "" where it may."""
        stored = self._views.storage.volumes.get(volume.name)
        if stored is None or stored.sequence != volume.made:
            return f"volume {volume.name} was deleted after this job was submitted"
        verb: Verb = "volume:read" if volume.read_only else "volume:write"
        target = volume_target(self._views, volume.name)
        if not self._has_sign_on or (target is not None and self._views.access.may(user, verb, target)):
            return ""
        return f"its user may not {verb.partition(':')[2]} volume {volume.name} any more"
