"""Messages between agents whose nodes hold ranks of one run: request and answer, nothing stored.

The subject names the sender and the receiver (`subjects.gang`), and the server lets each node send under its
own name only. The placer's process passes a message on with that name (`GangReply`). The receiver checks
against its own order that the sender's node holds the rank. Start at `GangCall`.
"""

import msgspec

from fairlead_schemas.units.validation import decode

#: A launcher's command line for another node; longer ones are refused.
COMMAND_BYTES_MAX = 128 * 1024


class GangCallBase(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """Fields of every gang call: the run, its placement (`epoch`), and the sender's rank."""

    job: str
    attempt: int
    epoch: int
    rank: int


class RankReady(GangCallBase, tag=True, frozen=True, kw_only=True):
    """To rank 0: everything that this rank's start needs is there. Asked again until the answer is `go`."""


class DaemonWanted(GangCallBase, tag=True, frozen=True, kw_only=True):
    """Request of rank 0, whose mpirun wants this command to run on the receiving rank's node. A repeated `id` changes
    nothing.
    """

    id: int
    command: str


class DaemonEnded(GangCallBase, tag=True, frozen=True, kw_only=True):
    """To rank 0: the command of that id has ended on this rank's node."""

    id: int
    code: int


GangCall = RankReady | DaemonWanted | DaemonEnded


class GangReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call as it is passed on: who spoke, as the server knows."""

    speaker: str
    call: msgspec.Raw


class GangAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`go`: every rank is ready (to RankReady), or it was taken up. Else `refusal` says why never, or nothing: not yet."""

    go: bool = False
    refusal: str = ""


_encoder = msgspec.json.Encoder(order="deterministic")
_call = msgspec.json.Decoder(GangCall)
_reply = msgspec.json.Decoder(GangReply)
_answer = msgspec.json.Decoder(GangAnswer)


def encode_gang(message: GangCall | GangReply | GangAnswer) -> bytes:
    """Canonical bytes of any of them."""
    return _encoder.encode(message)


def decode_call(payload: bytes) -> GangCall:
    """Raises msgspec.MsgspecError."""
    return decode(_call, payload)


def decode_reply(payload: bytes) -> tuple[str, GangCall]:
    """Return (sending node, its call). Raises msgspec.MsgspecError."""
    heard = decode(_reply, payload)
    return heard.speaker, decode_call(bytes(heard.call))


def decode_answer(payload: bytes) -> GangAnswer:
    """Raises msgspec.MsgspecError."""
    return decode(_answer, payload)
