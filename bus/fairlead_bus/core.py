"""Interface of a core, the pure part of a service, and what all cores share: no asyncio, no clock, no randomness, no I/O,
no logging.

The same core runs under the live shell (`service.py`), in the simulator and in replay. All cores have one floor plan:

    apply/handlers.py    {type of event: its handler}, one effect on the state each; `apply_events` folds a commit
    decide/decision.py   the order of a decision's rules; they emit their events on a `CommitDraft`
    decide/commands.py   {type of command: its handler}; `undecodable` answers bytes that are no command
    snapshot.py          the state as rows (`snapshot_codec.py`)
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import msgspec

from fairlead_schemas.wire.authority import Authority
from fairlead_schemas.wire.commands import CommandBase, Undecodable
from fairlead_schemas.wire.commit import COMMIT_BYTES_MAX, COMMIT_EVENTS_MAX, Commit
from fairlead_schemas.wire.events import (
    AccessCommandRejected,
    CommandRejected,
    Event,
    NodeCommandRejected,
    StorageCommandRejected,
    TelemetryCommandRejected,
)


class Input(NamedTuple):
    """Something for a core to decide upon."""

    #: Source of the input: "CMD" for commands. Each core defines its other names (the placer: `report`, `silent`,
    #: `heard`).
    source: str
    #: Position in its source (CMD: the stream sequence of the message); 0 for sources without positions.
    position: int
    #: CMD: list of commands and `Undecodable`, one message.
    body: Any


class Decision(NamedTuple):
    """Contents of one commit. Without events and cursors there is no commit."""

    events: list[Event]
    #: Inputs consumed by it: {"CMD": 812, "report.n7": 93}.
    cursors: dict[str, int]


NOTHING = Decision([], {})

_encode = msgspec.json.Encoder().encode


class Core(Protocol):
    """State, folded from the log; decisions, read off the state."""

    #: Name of the shape of `snapshot` (`snapshot_codec.schema_of`); a snapshot of another shape is not restored.
    schema: ClassVar[str]

    def evolve(self, seq: int, commit: Commit) -> None:
        """Fold one commit (own or another writer's). The only way state changes; no rules; cannot fail on a
        valid commit."""
        ...

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        """Return the events and cursors to commit now, at most COMMIT_EVENTS_MAX events. The observable state stays unchanged
        (docs/adr/0018-speculative-apply.md). All `inputs` count as consumed once the commit is in the log.
        """
        ...

    def split(self, item: Input) -> list[Input]:
        """An input in smaller ones, each to be decided and committed by itself; [] where it cannot be split.
        Asked where `decide` raises upon it. Never asked about CMD, whose cursor moves by whole messages."""
        ...

    def reject(self, item: Input, error: str, now_ns: int) -> Decision:
        """Return the decision to commit in place of an indivisible input on which `decide` raises. The decision records the input
        as rejected and moves past it. Never called for CMD.
        """
        ...

    def wake_at(self) -> int | None:
        """Return the time (Unix ns) at which time alone could change the decision; 0 when there is more to decide at once."""
        ...

    def snapshot(self) -> bytes:
        """All state, canonical: equal states have equal bytes."""
        ...

    @classmethod
    def restore(cls, data: bytes) -> Self:
        """The inverse of `snapshot`."""
        ...


# -- events applied to the state


class EventPosition(msgspec.Struct, gc=False):
    """Place of an event in the log, and the log time of its commit.

    One object serves all events of a commit, in turn: a handler keeps `id`, never the position. An object for each event
    costs 1 % of all that queue and placer do.
    """

    sequence: int
    index: int
    time_ns: int

    @property
    def id(self) -> str:
        """Id of the event, which later events name as their cause."""
        return f"{self.sequence}.{self.index}"


#: The effect of one event on a core's state. It contains no rule and cannot fail on a valid log.
type EventHandler[S] = Callable[[S, Any, EventPosition], None]
#: {type of event: its handler}. An event of a type that is not listed changes nothing.
type EventHandlers[S] = dict[type, EventHandler[S]]


def merged[S](*tables: EventHandlers[S]) -> EventHandlers[S]:
    """Return one table of all handlers. No type of event may be in two of them."""
    handlers = {kind: handler for table in tables for kind, handler in table.items()}
    assert len(handlers) == sum(map(len, tables)), "an event has two handlers"
    return handlers


def apply_events[S](handlers: EventHandlers[S], state: S, seq: int, commit: Commit) -> None:
    """Apply the events of one commit to the state, in their order."""
    at = EventPosition(seq, 0, commit.at_ns)
    for index, event in enumerate(commit.events):
        handler = handlers.get(type(event))
        if handler is not None:
            at.index = index
            handler(state, event, at)


# -- a decision in progress


class CommitDraft[S, E: Event]:
    """Events of a decision in progress, and their size in the commit. Each core adds to it what its later rules must know of
    the events so far.
    """

    __slots__ = ("authority", "authority_bytes", "events", "now_ns", "size", "state")

    #: Encoded size of an ordinary event.
    EVENT_BYTES: ClassVar[int] = 200

    def __init__(self, state: S, now_ns: int) -> None:
        self.state = state
        self.now_ns = now_ns
        self.events: list[E] = []
        #: Estimated size of the events in bytes.
        self.size: int = 0
        #: Authority of the command under decision, and the bytes that it adds to each event.
        self.authority: Authority | None = None
        self.authority_bytes: int = 0

    def repeat(self, authority: Authority | None) -> None:
        """Repeat an authority in each event that is emitted from here on; None: in none. `decide_command` calls it before the
        command's handler and after it.
        """
        self.authority = authority
        self.authority_bytes = authority_bytes(authority)

    def authorized(self, event: E) -> E:
        """Return the event with the authority of the command under decision."""
        if event.authority is self.authority:
            return event
        return msgspec.structs.replace(event, authority=self.authority)

    def emit(self, event: E, extra_bytes: int = 0) -> None:
        """Add an event. `extra_bytes`: its size beyond that of an ordinary event."""
        if self.authority is not None:
            event = self.authorized(event)
            extra_bytes += self.authority_bytes
        self.events.append(event)
        self.size += self.EVENT_BYTES + extra_bytes

    def fits(self, extra_bytes: int = 0, events: int = 1) -> bool:
        """Return True if a commit can also hold so many more events, which take `extra_bytes` beyond ordinary ones."""
        return (
            len(self.events) + events <= COMMIT_EVENTS_MAX
            and self.size + events * (self.EVENT_BYTES + self.authority_bytes) + extra_bytes <= COMMIT_BYTES_MAX
        )


#: Encoded size of the field's name with its comma.
_AUTHORITY_FIELD_BYTES = len('"authority":,')


#: Senders whose sizes are remembered.
SENDERS_KEPT = 4096


def authority_bytes(authority: Authority | None) -> int:
    """Return the encoded size of an authority in a command or event; 0 for None."""
    if authority is None:
        return 0
    return _sender_bytes(authority.principal, authority.via, authority.act_as) + len(str(authority.rights))


@lru_cache(SENDERS_KEPT)
def _sender_bytes(principal: str, via: str, act_as: str) -> int:
    """Return the size of an authority without its sequence. Many commands are of few senders, and each is measured several times."""
    one_digit = Authority(principal=principal, via=via, rights=0, act_as=act_as)
    return len(_encode(one_digit)) - 1 + _AUTHORITY_FIELD_BYTES


#: Characters of another program's text that an event repeats.
MESSAGE_CHARS_MAX = 500


def encoded_bytes(text: str) -> int:
    """Return the encoded size of another program's text: one character may take six bytes and more."""
    return len(msgspec.json.encode(text)) if text else 0


def names_bytes(names: Iterable[str]) -> int:
    """Return the encoded size of a list of names, such as those of nodes."""
    return sum(len(name) + 3 for name in names)


# -- commands


class CommandRefusal(NamedTuple):
    """Reason for refusing a command: a code for programs, a sentence for people."""

    code: str
    message: str
    #: Path of the refused field in the job file; "" where no single field is wrong.
    field: str = ""


type Rejection = (
    CommandRejected | NodeCommandRejected | TelemetryCommandRejected | AccessCommandRejected | StorageCommandRejected
)


#: Characters of the name of a refused command's object.
ABOUT_CHARS_MAX = 80
#: Fields of commands that name their object, the most particular one first.
_ABOUT = ("job", "node", "service", "volume", "dataset", "name", "scope", "principal", "group", "token")


def rejected[R: Rejection](
    kind: type[R], command: CommandBase, refusal: CommandRefusal, *, chars_max: int = MESSAGE_CHARS_MAX
) -> R:
    """Return the event, of a writer's own kind, that answers a refused command."""
    return kind(
        cause=f"cmd:{command.id}",
        command=command.id,
        code=refusal.code,
        message=refusal.message[:chars_max],
        verb=type(command).__name__,
        about=_about(command)[:ABOUT_CHARS_MAX],
    )


def _about(command: CommandBase) -> str:
    for field in _ABOUT:
        found: object = getattr(command, field, None)
        if isinstance(found, str) and found:
            return found
    return ""


#: Characters of a digest that take the place of an id where a command has none.
DIGEST_CHARS = 16
#: Characters of the reason why bytes are no command: four hundred such answers must fit a commit.
UNDECODABLE_CHARS_MAX = 100


def undecodable[R: Rejection](kind: type[R], command: Undecodable) -> R:
    """Return the event, of a writer's own kind, that answers bytes that are no command. It names them by their digest."""
    return kind(
        cause=f"cmd:{command.id or command.digest[:DIGEST_CHARS]}",
        command=command.id,
        code="undecodable",
        message=command.message[:UNDECODABLE_CHARS_MAX],
        digest=command.digest,
    )
