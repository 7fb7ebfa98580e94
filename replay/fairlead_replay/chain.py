"""Is a log whole and true? Checks it commit by commit and names the first bad sequence. Pure.

Two kinds of findings: what a commit says about itself (`Audit.take` sees it at once), and what its
writer's next commit, or a manifest, says about its bytes (known later, blamed on the earlier one). So
nothing is decided before the end: the verdict is the lowest of all findings. Start at `Audit`.
"""

from typing import NamedTuple

from fairlead_bus.log import NO_HEAD, Head
from fairlead_bus.port import Stored
from fairlead_replay.lives import IllegalMove, Lives
from fairlead_schemas import subjects
from fairlead_schemas.commit import Commit, CommitUndecodable, commit_hash, decode_commit
from fairlead_schemas.events import EVENTS_OF, NodeJoined

#: Findings kept; a log that is broken all through needs no more to be refused.
FINDINGS_MAX = 1000


class Finding(NamedTuple):
    """What is wrong, and with which sequence of the log."""

    sequence: int
    what: str


class Verdict(NamedTuple):
    """The outcome of an audit. `first_bad` is 0 where no sequence is to blame (a manifest that cannot be read)."""

    ok: bool
    commits: int
    events: int
    first_bad: int
    what: str


class Link(NamedTuple):
    """What is kept of a commit for the check of the chain."""

    sequence: int
    n: int
    prev: str
    hash: str


class Audit:
    """Takes a log's commits in the order found, then gives the verdict."""

    def __init__(self) -> None:
        self.commits = 0
        self.events = 0
        self.findings: list[Finding] = []
        #: Each writer's commits as found.
        self.links: dict[str, list[Link]] = {}
        self.newest: dict[str, Commit] = {}
        #: {writer: {input: consumed up to here}}; a commit names only those that it moved.
        self.cursors: dict[str, dict[str, int]] = {}
        self.event_counts: dict[int, int] = {}
        self.lives = Lives()
        self._lives_follow = True
        self.expected = 1

    def take(self, stored: Stored) -> None:
        """One commit as it was found, in order of place."""
        sequence, subject, payload = stored.sequence, stored.subject, stored.payload
        if sequence != self.expected:
            self.find(min(self.expected, sequence), f"expected sequence {self.expected}, found {sequence}")
        self.expected = sequence + 1
        self.commits += 1
        writer = subjects.writer_of(subject)
        try:
            commit = decode_commit(payload)
        except CommitUndecodable as error:
            self.find(sequence, str(error))
            return
        if subject != subjects.log(commit.writer):
            self.find(sequence, f"commit of {commit.writer!r} stands under {subject}")
        self.events += len(commit.events)
        self.event_counts[sequence] = len(commit.events)
        self._check(sequence, writer, commit)
        self.links.setdefault(writer, []).append(Link(sequence, commit.n, commit.prev, commit_hash(payload)))
        self.newest[writer] = commit
        self._follow(sequence, commit)

    def broken(self, sequence: int, what: str) -> None:
        """Where a commit should stand, there is something else."""
        self.find(sequence, what)
        self.expected = sequence + 1
        self.commits += 1

    def find(self, sequence: int, what: str) -> None:
        """Something is wrong with a sequence."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(sequence, what))

    def verdict(self, *, last: int | None = None, heads: dict[str, Head] | None = None) -> Verdict:
        """The outcome; `last` and `heads` are what a manifest says about the end of the log."""
        if last is not None and self.expected <= last:
            self.find(self.expected, f"the log ends before sequence {self.expected}, its manifest says {last}")
        elif last is not None and self.expected > last + 1:
            self.find(last + 1, f"the manifest says that the log ends at sequence {last}")
        for writer in sorted(self.links.keys() | (heads or {}).keys()):
            self._check_chain(writer, None if heads is None else heads.get(writer, NO_HEAD))
        first = min(self.findings, default=None)
        if first is None:
            return Verdict(True, self.commits, self.events, 0, "whole")
        return Verdict(False, self.commits, self.events, first.sequence, first.what)

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
        """Inputs are consumed once. A node's reports are counted anew where it joins under another journal."""
        consumed = self.cursors.setdefault(writer, {})
        joined = {f"report.{event.node}" for event in commit.events if isinstance(event, NodeJoined)}
        for cursor, position in commit.cursors.items():
            if position < consumed.get(cursor, 0) and cursor not in joined:
                self.find(sequence, f"{writer}'s cursor {cursor} fell from {consumed[cursor]} to {position}")
            consumed[cursor] = position

    def _check_cause(self, sequence: int, cause: str) -> None:
        place, dot, index = cause.partition(".")
        if not dot or not place.isdecimal() or not index.isdecimal():
            if not cause.startswith(("cmd:", "report:")) and cause != "clock":
                self.find(sequence, f"an event's cause is {cause!r}")
            return
        if int(place) >= sequence:
            self.find(sequence, f"an event's cause {cause} is not before it")
        elif int(index) >= self.event_counts.get(int(place), 0) and not self.findings:
            self.find(sequence, f"an event's cause {cause} does not exist")

    def _follow(self, sequence: int, commit: Commit) -> None:
        # Once a move was illegal, everything after it would be judged by a wrong state.
        if self._lives_follow:
            try:
                self.lives.fold(commit)
            except IllegalMove as error:
                self._lives_follow = False
                self.find(sequence, str(error))

    # ------------------------------------------------------------------ what others say of its bytes

    def _check_chain(self, writer: str, head: Head | None) -> None:
        """From the newest commit back: the word of a commit that is itself bad counts for nothing."""
        links = self.links.get(writer, [])
        newest = links[-1] if links else Link(0, 0, "", NO_HEAD.hash)
        trusted = True
        if head is not None and Head(newest.n, newest.hash, newest.sequence) != head:
            trusted = False
            if newest.n == head.n:
                self.find(
                    newest.sequence or head.sequence, f"{writer}'s commit {head.n} is not the one of the manifest"
                )
            elif newest.n < head.n:
                self.find(head.sequence, f"{writer}'s commit {head.n} is missing")
        for at in range(len(links) - 1, -1, -1):
            link, before = links[at], links[at - 1] if at else Link(0, 0, "", NO_HEAD.hash)
            if link.n != before.n + 1:
                self.find(link.sequence, f"{writer}'s commit {link.n} follows its commit {before.n}")
                trusted = True
            elif link.prev == before.hash:
                trusted = True
            else:
                bad = before.sequence if trusted and before.sequence else link.sequence
                self.find(bad, f"{writer}'s commit {before.n} does not have the hash that its commit {link.n} states")
                # The word of a commit that is bad itself puts nobody in doubt.
                trusted = not trusted
