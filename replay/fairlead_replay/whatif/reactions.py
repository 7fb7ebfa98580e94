"""How late services received each commit, and how long they were busy with their own, as a log recorded it. Pure.

A live service decides some milliseconds after the commit that it decides upon, on a slow network a second after. Other services
decide meanwhile. The order of decisions within an instant decides all that follows, so a play in which every core knows every
commit at once soon has other starts. Instead, each core of a play folds a commit as late as the recorded service did. A commit
names the sequence up to which its writer had folded (its basis); from it follows which writer knew which commit when.

Delays belong to events: the placement of a job's second run is received as late as it was in the record. An event that the
record does not have is received after the usual delay.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from statistics import median_low
from typing import NamedTuple, Protocol

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit

#: Writers that are played.
PLAYED: tuple[str, ...] = ("queue", "placer")
#: A writer that answers its own commit later than this had waited for something else.
READY_MAX_NS = 300_000_000

#: Events whose delays are kept, some 300 bytes each; in longer recordings later ones have the usual delay.
EVENTS_MAX = 200_000

type EventKey = tuple[str, str, int, int]


class EventKeys:
    """Names of events that are equal in a record and its play: kind, job or node, attempt, and the how many-th it is of those."""

    def __init__(self, real_of: Callable[[str], str] = lambda job: job) -> None:
        self._real_of = real_of
        self._seen: Counter[tuple[str, str, int]] = Counter()

    def of(self, commit: Commit) -> list[EventKey]:
        """Return the names of the next commit's events."""
        found: list[EventKey] = []
        for event in commit.events:
            job: str = getattr(event, "job", "")
            about = self._real_of(job) if job else getattr(event, "node", "")
            what = (type(event).__name__, about, getattr(event, "attempt", 0) or 0)
            self._seen[what] += 1
            found.append((*what, self._seen[what]))
        return found


class Reactions(NamedTuple):
    """Delays in ns."""

    #: {writer: {commit of another: time until it was heard}}
    heard: dict[str, dict[EventKey, int]]
    #: {writer: {own commit: time until it could decide again}}
    ready: dict[str, dict[EventKey, int]]
    #: {writer: the usual time of each}
    usual_heard: dict[str, int]
    usual_ready: dict[str, int]

    @property
    def are_instant(self) -> bool:
        """True where everybody knew everything at once, as in logs that the engine recorded."""
        return not any(self.usual_heard.values()) and not any(any(delays.values()) for delays in self.heard.values())


class _Unheard(NamedTuple):
    sequence: int
    keys: list[EventKey]
    at_ns: int
    not_before_ns: int = 0


class ReactionWatch:
    """Reader of a log that finds what each writer knew when."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._keys = EventKeys()
        self._events_left = events_max
        self._unheard: dict[str, list[_Unheard]] = {writer: [] for writer in PLAYED}
        self._basis = dict.fromkeys(PLAYED, 0)
        self._own: dict[str, tuple[int, list[EventKey], int]] = {}
        #: {writer: {commit: (at least, at most)}}; equal where an answer shows it.
        self._bounds: dict[str, dict[EventKey, tuple[int, int]]] = {writer: {} for writer in PLAYED}
        self._answers: dict[str, list[int]] = {writer: [] for writer in PLAYED}
        self._ready: dict[str, dict[EventKey, int]] = {writer: {} for writer in PLAYED}
        self._again: dict[str, list[int]] = {writer: [] for writer in PLAYED}
        self._commands: dict[str, int] = {}

    def take(self, sequence: int, commit: Commit, now_ns: int) -> None:
        """Take the next commit of the log."""
        self._events_left -= len(commit.events)
        if self._events_left < 0:
            return
        keys = self._keys.of(commit)
        writer = commit.writer
        for event in commit.events:
            if event.cause.startswith("cmd:"):
                self._commands.setdefault(event.cause, sequence)
        if writer in PLAYED:
            self._decided(writer, commit, sequence, keys, now_ns)
        for other in PLAYED:
            if other != writer:
                self._unheard[other].append(_Unheard(sequence, keys, now_ns))

    def _decided(self, writer: str, commit: Commit, sequence: int, keys: list[EventKey], now_ns: int) -> None:
        answered = {self._asked(event) for event in commit.events}
        own = self._own.get(writer)
        if own is not None:
            own_sequence, own_keys, own_ns = own
            gap_ns = now_ns - own_ns
            # What it had known before its own commit came back, and answers only now, had waited for it all the time.
            follows = own_sequence in answered and gap_ns <= READY_MAX_NS
            if follows or any(self._basis[writer] < each < own_sequence for each in answered):
                self._ready[writer].update(dict.fromkeys(own_keys, gap_ns))
            if follows:
                self._again[writer].append(gap_ns)
        self._own[writer] = (sequence, keys, now_ns)
        still: list[_Unheard] = []
        for each in self._unheard[writer]:
            waited_ns = now_ns - each.at_ns
            if each.sequence > commit.basis:
                still.append(each._replace(not_before_ns=waited_ns + 1))
            elif each.sequence in answered:
                self._bounds[writer].update(dict.fromkeys(each.keys, (waited_ns, waited_ns)))
                self._answers[writer].append(waited_ns)
            else:
                self._bounds[writer].update(dict.fromkeys(each.keys, (each.not_before_ns, waited_ns)))
        self._unheard[writer] = still
        self._basis[writer] = commit.basis

    def _asked(self, event: ev.Event) -> int:
        if event.cause.startswith("cmd:"):
            return self._commands.get(event.cause, 0)
        place, dot, _ = event.cause.partition(".")
        return int(place) if dot and place.isdecimal() else 0

    def reactions(self) -> Reactions:
        """Return what was found."""
        usual_heard = {writer: _usual(found) for writer, found in self._answers.items()}
        usual_ready = {writer: _usual(found) for writer, found in self._again.items()}
        heard = {
            writer: {key: max(least, min(most, usual_heard[writer])) for key, (least, most) in bounds.items()}
            for writer, bounds in self._bounds.items()
        }
        return Reactions(heard, self._ready, usual_heard, usual_ready)


def _usual(found: Iterable[int]) -> int:
    prompt = [each for each in found if each <= READY_MAX_NS]
    return median_low(prompt) if prompt else 0


class JobIds(Protocol):
    """Jobs of a play and of its record (`stimuli.IdMap`)."""

    def enter(self, event: ev.JobSubmitted) -> bool:
        """A job enters the play. False for one that the record has not."""
        ...

    def real(self, played: str) -> str:
        """Return the record's id of a job of the play."""
        ...


class PlayedReactions:
    """The same in a play, whose jobs have other ids."""

    def __init__(self, reactions: Reactions, ids: JobIds) -> None:
        self._reactions, self._ids, self._keys = reactions, ids, EventKeys(ids.real)

    def delays(self, commit: Commit) -> dict[str, int]:
        """Return {writer: time until it hears of the next commit; of the own one, until it decides again}."""
        for event in commit.events:
            if isinstance(event, ev.JobSubmitted):
                self._ids.enter(event)
        keys, reactions, found = self._keys.of(commit), self._reactions, dict[str, int]()
        for writer in PLAYED:
            own = writer == commit.writer
            known = reactions.ready[writer] if own else reactions.heard[writer]
            usual = reactions.usual_ready[writer] if own else reactions.usual_heard[writer]
            found[writer] = max([delay_ns for key in keys if (delay_ns := known.get(key)) is not None], default=usual)
        return found
