"""Question of a node about the volumes of a run that it is to start or that it runs, and the gateway's answer: what each volume is now,
and whether the run's user may still have it.

A node asks in its own name (the subject names it) and only about runs that are placed on it. Start at `AskVolumes`.
"""

import msgspec

from fairlead_schemas.policies.storage import Backend


class AskVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """Run whose volumes a node wants to mount, or has mounted."""

    job: str
    attempt: int
    rank: int


class VolumeGrant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Volume that a run may have. `name` and `made` are its identity: another volume of the name has another `made`."""

    name: str
    made: int
    storage_class: str
    backend: Backend
    quota_bytes: int
    #: User and group of its files on disk.
    uid: int
    #: False: the run may only read it.
    write: bool = False


class VolumeGrants(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer: the volumes of the job file that are the cluster's."""

    volumes: list[VolumeGrant] = []
    #: Reason why the run may not start with them, for its submitter; "" where it may.
    refused: str = ""
    #: True: the gateway does not know this run on this node, or not yet; ask again.
    unknown: bool = False
    #: True: the cluster has sign-on, so that several people's processes share a node without containers.
    several_users: bool = False


_encode = msgspec.json.Encoder(order="deterministic").encode
_question, _answer = msgspec.json.Decoder(AskVolumes), msgspec.json.Decoder(VolumeGrants)


def encode_volumes(message: AskVolumes | VolumeGrants) -> bytes:
    """Canonical bytes of a question or an answer."""
    return _encode(message)


def decode_question(payload: bytes) -> AskVolumes:
    """Decode a node's question. Raises msgspec.MsgspecError."""
    return _question.decode(payload)


def decode_grants(payload: bytes) -> VolumeGrants:
    """Decode the gateway's answer. Raises msgspec.MsgspecError."""
    return _answer.decode(payload)
