"""Refusal of a command to the placer."""

from typing import NamedTuple

from fairlead_placer.draft import EVENT_BYTES, Draft, encoded_bytes
from fairlead_schemas.wire import events as ev

#: So much of what others wrote is repeated in an event.
MESSAGE_CHARS_MAX = 500


class Refusal(NamedTuple):
    """Reason for refusing a command: a code for programs, a sentence for people."""

    code: str
    message: str


def rejected(draft: Draft, command_id: str, refusal: Refusal, digest: str = "") -> None:
    """Record it."""
    message = refusal.message[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.NodeCommandRejected(
            cause=f"cmd:{command_id}", command=command_id, code=refusal.code, message=message, digest=digest
        ),
        EVENT_BYTES + encoded_bytes(message),
    )
