"""Questions about what-if studies to the process that answers about the past, and its answers. Never stored.

A study runs in the process that took it, and its name tells which: further questions about it go there. Answers have the form of
those about the past (`fairlead_schemas.queries.past`): a line of JSON, and the bytes of a body behind it.
"""

from typing import Annotated, Any, Literal

import msgspec

from fairlead_schemas.queries.past import PastCaller
from fairlead_schemas.wire import subjects

#: A question is answered within this time, or with an error. A question that waits for news does so for `WAIT_S` at most.
ANSWER_S, WAIT_S = 15.0, 5.0
#: Where a study is asked for; any process takes it.
START = subjects.rpc("past", "whatif")
#: Letters of a process in the names of its studies.
PROCESS_CHARS = 8

type Users = Literal["open", "closed"]


class StudyWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/whatif: a change, and the part of the log that it is tried on."""

    #: sequencer, pools, queues, nodes: as in a file of `fairlead whatif -f`.
    change: dict[str, Any]
    #: RFC 3339; "": the log's start and end.
    from_: str = msgspec.field(default="", name="from")
    to: str = ""
    #: Pairs of shaken plays; fewer than 3 show no effects.
    seeds: Annotated[int, msgspec.Meta(ge=0, le=64)] = 5
    users: Users = "open"
    #: Moments are looked at this far apart only ("1s"); "": exactly.
    grid: str = ""


class StudyQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A question: start a study, read it, end it; or a further piece of an answer."""

    verb: Literal["start", "read", "cancel", "piece"]
    #: Name of the study; of a piece, that of the answer.
    name: str = ""
    caller: PastCaller = PastCaller()
    #: The views of the gateway have folded up to here: rights that have changed until then count.
    sequence: int = 0
    wish: StudyWish | None = None
    #: Answer once the study has come further than this revision, or after a while. -1: at once.
    seen: int = -1
    #: Show effects also where the control does not match the record.
    even_so: bool = False
    #: Leave the findings out.
    brief: bool = False
    piece: int = 0


class StudyRefused(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of an answer whose status is an error: the code, the words, and the fields that are wrong."""

    code: str
    detail: str
    #: (field, message)
    errors: tuple[tuple[str, str], ...] = ()
    hint: str = ""


def follow_up(name: str) -> str:
    """Return the subject for questions about a study."""
    return subjects.rpc("past", f"whatif-{name[:PROCESS_CHARS]}")


_question = msgspec.json.Decoder(StudyQuestion)
_refused = msgspec.json.Decoder(StudyRefused)
encode = msgspec.json.Encoder().encode


def decode_question(payload: bytes) -> StudyQuestion:
    """Return the question that was encoded. Raises msgspec.MsgspecError."""
    return _question.decode(payload)


def decode_refused(payload: bytes) -> StudyRefused:
    """Return why a question is not answered. Raises msgspec.MsgspecError."""
    return _refused.decode(payload)
