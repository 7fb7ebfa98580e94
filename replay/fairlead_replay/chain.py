"""Is a log whole and true? Checks it commit by commit and names the first bad sequence. Pure.

Two kinds of findings: what a commit says about itself (`Audit.take` sees it at once), and what its
writer's next commit, or a manifest, says about its bytes (known later, blamed on the earlier one). So
nothing is decided before the end: the verdict is the lowest of all findings. Of a commit that is whole almost
nothing is kept, so that a long log fits. Start at `Audit`.
"""

from array import array
from typing import NamedTuple

from fairlead_bus.log import NO_HEAD, LogHead
from fairlead_bus.port import Stored
from fairlead_replay.lives import IllegalMove, Lives
from fairlead_replay.rights_audit import CommandCount, RightsAudit
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import Commit, CommitUndecodable, commit_hash, decode_commit
from fairlead_schemas.wire.events import EVENTS_OF, NodeJoined

#: Findings kept; a log that is broken all through needs no more to be refused.
FINDINGS_MAX = 1000
#: A longer place than this is none; Python would not even read its number.
PLACE_CHARS_MAX = 40


class LogFinding(NamedTuple):
    """Fault of the log, and its sequence."""

    sequence: int
    what: str


class LogVerdict(NamedTuple):
    """The outcome of an audit. `first_bad` is 0 where no sequence is to blame (a manifest that cannot be read)."""

    ok: bool
    commits: int
    events: int
    first_bad: int
    what: str
    #: Commands and the rights by which they were sent (invariant I13).
    rights: CommandCount = CommandCount()


class Break(NamedTuple):
    """A commit that states another hash than that of its writer's commit before it: one of the two is bad."""

    at: int  # how many commits of its writer were found before it
    sequence: int
    n: int
    before: LogHead


class Links:
    """State of a writer's chain during the check: its newest commit, and the places where the chain breaks."""

    __slots__ = ("breaks", "count", "newest")

    def __init__(self) -> None:
        self.count = 0
        self.newest = NO_HEAD
        self.breaks: list[Break] = []


class Audit:
    """Takes a log's commits in the order found, then gives the verdict.

    `heads` is what a manifest says about every writer's newest commit (None: there is no manifest).
    """

    def __init__(self, heads: dict[str, LogHead] | None = None) -> None:
        self.heads = heads
        self.commits = 0
        self.events = 0
        self.findings: list[LogFinding] = []
        self._first: LogFinding | None = None
        self.links: dict[str, Links] = {}
        self.newest: dict[str, Commit] = {}
        #: {writer: {input: consumed up to here}}; a commit names only those that it moved.
        self.cursors: dict[str, dict[str, int]] = {}
        #: How many events each commit has, by place; kept up only while nothing is wrong.
        self.event_counts = array("I")
        self.lives = Lives()
        self._lives_follow = True
        self.rights = RightsAudit()
        self._rights_follow = True
        self.expected = 1

    def take(self, stored: Stored) -> None:
        """Check one commit as found in the log. Commits are passed in order of place."""
        sequence, subject, payload = stored.sequence, stored.subject, stored.payload
        if sequence != self.expected:
            self.find(self.expected, f"expected sequence {self.expected}, found {sequence}")
            sequence = max(sequence, self.expected)  # a number that was there before is wrong at its current place
        self.expected = sequence + 1
        self.commits += 1
        writer = subjects.writer_of(subject)
        try:
            commit = decode_commit(payload)
        except CommitUndecodable as error:
            self.find(sequence, str(error))
            return
        if subject != subjects.log(commit.writer):
            self.find(sequence, f"commit of {commit.writer!r} is stored under {subject}")
        self.events += len(commit.events)
        self._check(sequence, writer, commit)
        if not self.findings:
            self.event_counts.append(len(commit.events))
        self._link(writer, commit, LogHead(commit.n, commit_hash(payload), sequence))
        self.newest[writer] = commit
        self._follow(sequence, commit)

    def broken(self, sequence: int, what: str) -> None:
        """Record that other data was found in the place of a commit."""
        self.find(sequence, what)
        self.expected = sequence + 1
        self.commits += 1

    def find(self, sequence: int, what: str) -> None:
        """Something is wrong with a sequence (one below 1 is only named where there is no other to name)."""
        finding = LogFinding(sequence, what)
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)
        if self._first is None or (sequence < 1, finding) < (self._first.sequence < 1, self._first):
            self._first = finding

    def verdict(self, *, first: int = 1, last: int | None = None) -> LogVerdict:
        """The outcome; `first` and `last` are what a manifest says about the ends of the log."""
        if first != 1:
            self.find(1, f"by its manifest the log begins at sequence {first}")
        if last is not None and self.expected <= last:
            self.find(self.expected, f"the log ends before sequence {self.expected}; by its manifest it ends at {last}")
        elif last is not None and self.expected > last + 1:
            self.find(last + 1, f"by its manifest the log ends at sequence {last}")
        for writer, links in self.links.items():
            self._check_chain(writer, links)
        for writer, head in (self.heads or {}).items():
            if writer not in self.links:
                self.find(head.sequence, f"{writer}'s commit {head.n} is missing")
        if self._first is None:
            return LogVerdict(True, self.commits, self.events, 0, "whole", self.rights.commands)
        bad = self._first
        return LogVerdict(False, self.commits, self.events, bad.sequence, bad.what, self.rights.commands)

    # ------------------------------------------------------------------ a commit by itself

    def _check(self, sequence: int, writer: str, commit: Commit) -> None:
        if commit.basis >= sequence:
            self.find(sequence, f"decided upon sequence {commit.basis}, which is not before it")
        allowed = EVENTS_OF.get(commit.writer, ())
        for event in commit.events:
            if not isinstance(event, allowed):
                self.find(sequence, f"{type(event).__name__} is no event of {commit.writer!r}")
            self._check_cause(sequence, event.cause)
        before = self.newest.get(writer, commit)
        if commit.at_ns < before.at_ns:
            self.find(sequence, f"{writer}'s clock fell from {before.at_ns} to {commit.at_ns}")
        if commit.basis < before.basis:
            self.find(sequence, f"{writer} had folded sequence {before.basis}, and now {commit.basis}")
        self._check_cursors(sequence, writer, commit)

    def _check_cursors(self, sequence: int, writer: str, commit: Commit) -> None:
        """Check that inputs are consumed once. A node's reports are counted from the start again where it joins under another
        journal.
        """
        consumed = self.cursors.setdefault(writer, {})
        joined = {f"report.{event.node}" for event in commit.events if isinstance(event, NodeJoined)}
        for cursor, position in commit.cursors.items():
            if position < consumed.get(cursor, 0) and cursor not in joined:
                self.find(sequence, f"{writer}'s cursor {cursor} fell from {consumed[cursor]} to {position}")
            consumed[cursor] = position

    def _check_cause(self, sequence: int, cause: str) -> None:
        place, dot, index = cause.partition(".")
        if not dot or not place.isdecimal() or not index.isdecimal() or len(cause) > PLACE_CHARS_MAX:
            if not cause.startswith(("cmd:", "report:")) and cause != "clock":
                self.find(sequence, f"an event's cause is {cause!r}")
            return
        if int(place) >= sequence:
            self.find(sequence, f"an event's cause {cause} is not before it")
        elif not self.findings and (int(place) < 1 or int(index) >= self.event_counts[int(place) - 1]):
            self.find(sequence, f"an event's cause {cause} does not exist")

    def _follow(self, sequence: int, commit: Commit) -> None:
        # Once a move was illegal, everything after it would be judged by a wrong state.
        if self._lives_follow:
            try:
                self.lives.fold(commit)
            except (ValueError, OverflowError) as error:
                self._lives_follow = False
                illegal = isinstance(error, IllegalMove)
                self.find(sequence, str(error) if illegal else f"an event cannot be followed: {error}")
        if self._rights_follow:
            try:
                wrong = self.rights.take(sequence, commit)
            except (ValueError, AssertionError) as error:
                self._rights_follow = False
                wrong = f"the rights of an event cannot be followed: {error}"
            if wrong:
                self.find(sequence, wrong)

    # ------------------------------------------------------------------ what others say of its bytes

    def _link(self, writer: str, commit: Commit, head: LogHead) -> None:
        """A writer's next commit in the order found; `head` is its own number, hash and place."""
        links = self.links.setdefault(writer, Links())
        before, sequence = links.newest, head.sequence
        if commit.n != before.n + 1:
            self.find(sequence, f"{writer}'s commit {commit.n} follows its commit {before.n}")
        elif commit.prev != before.hash:
            links.breaks.append(Break(links.count, sequence, commit.n, before))
        if self.heads is not None and commit.n > self.heads.get(writer, NO_HEAD).n:
            self.find(sequence, f"the manifest does not know {writer}'s commit {commit.n}")
        links.count += 1
        links.newest = head

    def _check_chain(self, writer: str, links: Links) -> None:
        """From the newest commit back: the word of a commit that is itself bad counts for nothing."""
        newest, trusted = links.newest, True
        head = (self.heads or {}).get(writer)
        if head is not None and newest != head:
            trusted = False
            if newest.n == head.n:
                self.find(newest.sequence, f"{writer}'s commit {head.n} is not the one of the manifest")
            elif newest.n < head.n:
                self.find(head.sequence, f"{writer}'s commit {head.n} is missing")
        at = links.count
        for broken in reversed(links.breaks):
            # A commit between two breaks holds; its word is good.
            trusted = trusted if broken.at == at - 1 else True
            before, at = broken.before, broken.at
            bad = before.sequence if trusted and before.sequence else broken.sequence
            self.find(bad, f"{writer}'s commit {before.n} does not have the hash that its commit {broken.n} states")
            # The statement of a commit that is bad itself casts no doubt on other commits.
            trusted = not trusted
