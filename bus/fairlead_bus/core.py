"""Interface of a core, the pure part of a service: no asyncio, no clock, no randomness, no I/O, no logging.

The same core runs under the live shell (`service.py`), in the simulator and in replay.

Undo log of a core: speculative changes to folded state, each with the entry that restores it. Pure.

A decision tries its own events on the state, so that each rule sees the ones before it, and the state must be as it was
folded afterwards. Naively, the decision would take its changes back at its end. An exception in mid-decision then leaves
them in place: the state holds jobs and charges that no event in the log describes, and later commits are built on them.

So every change is noted here *before* it is made, and `speculating` rolls back however its block is left. An entry
restores an earlier value, and does so whether or not its change was made in full: an exception may strike between the
two. Data that a core derives from its state (indexes, memos) has no entries where restoring it costs more than working
it out again; `forget_derived` drops it after an exception. Start at `UndoLog.speculating`.

Names for the shapes of snapshots, derived from the types of which a snapshot is made. Pure.

A snapshot of another version may decode successfully: missing fields get their defaults, and the service continues from
a state that the log does not give. The obvious remedy, a version number raised by hand, is forgotten in one change of
five. The name is therefore a hash over every field of every type: under another name, the log is folded instead.
"""

import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import msgspec
from msgspec import inspect

from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.events import Event


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


class Core(Protocol):
    """State, folded from the log; decisions, read off the state."""

    #: Name of the shape of `snapshot` (`state_schema.schema_of`); a snapshot of another shape is not restored.
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


class UndoFailed(BaseException):
    """A rollback raised, so the state is unknown. No handler for ordinary exceptions may continue with such a core: the
    process ends, and the next one folds the log.
    """


class UndoLog:
    """Entries that restore the state, newest last; a core's state derives from it."""

    def __init__(self) -> None:
        #: (function, arguments) each; None while changes are final (folding).
        self.journal: list[tuple[Any, ...]] | None = None

    def note(self, restore: Callable[..., object], *args: Any) -> None:
        """Call `restore` with these arguments on rollback. To be called before the change."""
        if self.journal is not None:
            self.journal.append((restore, *args))

    def set(self, thing: object, name: str, value: object) -> None:
        """Set a field."""
        if self.journal is not None:
            self.journal.append((setattr, thing, name, getattr(thing, name)))
        setattr(thing, name, value)

    def put[K, V](self, table: dict[K, V], key: K, value: V) -> None:
        """Set or replace an entry of a table."""
        if self.journal is not None:
            if key in table:
                self.journal.append((table.__setitem__, key, table[key]))
            else:
                self.journal.append((table.pop, key, None))
        table[key] = value

    def drop[K, V](self, table: dict[K, V], key: K) -> V | None:
        """Remove an entry of a table, if it is there. A restored entry is the last of its table: no decision may
        depend on the order of one whose entries are dropped speculatively."""
        value = table.get(key)
        if value is not None:
            if self.journal is not None:
                self.journal.append((table.__setitem__, key, value))
            del table[key]
        return value

    def rollback(self) -> None:
        """Restore the state as it was when the journal was opened, and close the journal. Raises UndoFailed."""
        journal, self.journal = self.journal, None
        try:
            for entry in reversed(journal or ()):
                entry[0](*entry[1:])
        except BaseException as error:
            raise UndoFailed(f"the state is unknown, a rollback failed: {type(error).__name__}: {error}") from error

    def forget_derived(self) -> None:
        """Drop what is derived from the state and may be half updated: an exception has interrupted a decision."""

    def abort(self) -> None:
        """Roll back after an exception, which may have struck in the middle of a change."""
        self.forget_derived()
        self.rollback()

    @contextmanager
    def speculating(self) -> Generator[None]:
        """Roll back every change made in the block when it is left, by an exception too. Blocks nest."""
        outer, self.journal = self.journal, []
        try:
            yield
        except BaseException:
            self.abort()
            raise
        else:
            self.rollback()
        finally:
            self.journal = outer


#: Characters of the hash in a name.
HASH_CHARS = 16


def schema_of(document: type, meaning: int) -> str:
    """Return the name of a document's shape: "<meaning>-<hash>". `meaning` is raised by hand where a field changes its meaning
    and keeps its type.
    """
    text = "\n".join(described(document))
    return f"{meaning}-{hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARS]}"


def described(document: type) -> list[str]:
    """The structured types that a document reaches, sorted: name and encoding, then a line for each field."""
    found: dict[type, list[str]] = {}
    _describe(inspect.type_info(document), found)
    return [line for lines in sorted(found.values()) for line in lines]


def _describe(kind: inspect.Type, found: dict[type, list[str]]) -> str:
    """A type in words; structured ones by their names, with a line each."""
    match kind:
        case inspect.StructType():
            encoding = f"array={kind.array_like} tag={kind.tag_field}:{kind.tag}"
            return _structured(kind.cls, kind.fields, encoding, found)
        case inspect.NamedTupleType() | inspect.TypedDictType() | inspect.DataclassType():
            return _structured(kind.cls, kind.fields, type(kind).__name__, found)
        case inspect.UnionType():
            return "|".join(sorted(_describe(each, found) for each in kind.types))
        case inspect.LiteralType():
            return f"literal{sorted(map(repr, kind.values))}"
        case inspect.EnumType():
            return f"enum{sorted(repr(each.value) for each in kind.cls)}"
        case inspect.DictType():
            return f"dict[{_describe(kind.key_type, found)},{_describe(kind.value_type, found)}]"
        case inspect.TupleType():
            return f"tuple[{','.join(_describe(each, found) for each in kind.item_types)}]"
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return f"{type(kind).__name__}[{_describe(kind.item_type, found)}]"
        case inspect.CustomType():
            return kind.cls.__name__
        case _:
            return type(kind).__name__


def _structured(cls: type, fields: tuple[inspect.Field, ...], encoding: str, found: dict[type, list[str]]) -> str:
    if cls not in found:
        lines = found[cls] = [f"{cls.__name__} {encoding}"]  # before its fields: types may refer to themselves
        lines += [f"  {each.encode_name}: {_describe(each.type, found)} = {_default(each)}" for each in fields]
    return cls.__name__


def _default(field: inspect.Field) -> str:
    """A field's default: what bytes without the field mean."""
    if field.required:
        return "required"
    value: Any = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return msgspec.json.encode(value, order="deterministic").decode()
