"""Invariant I13: every accepted command with an authority was within its caller's rights.

An authority names the sequence up to which the gateway had folded the grants when it let the command pass. Every event that answers the
command repeats it, so the log alone suffices to judge again: that sequence is before the answer's own, the credential counted there and
belongs to the principal, and the principal had the verb on the thing, as both were there. Whoever acts for another is an admin of the
cluster.

The access service judges its commands itself, on the state before its commit, because rights to grant change by the commands that it
decides. Its events are judged on that state, too.

A command without an authority is counted: without sign-on there is none, and services send commands of their own. Start at
`RightsAudit.take`.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from fairlead_replay.rights_books import RightsBooks
from fairlead_rights.access_list import Target
from fairlead_rights.command_rights import (
    ACCOMPANYING,
    CLUSTER,
    EVENT_NEEDS,
    REFUSALS,
    Need,
    RoleNeed,
    targets_of,
    user_of,
)
from fairlead_rights.history import SESSION, TOKEN, AccessHistory, Credential
from fairlead_schemas.policies.rights import Scope, Verb, parse_scope
from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.authority import Authority
from fairlead_schemas.wire.commit import Commit

WRITER = "access"
COMMAND = "cmd:"
#: Answers kept: most commands of a busy cluster ask the same of the same grants.
ANSWERS_MAX = 10_000


class CommandCount(NamedTuple):
    """Commands by what is known of their right. Each command of a commit counts once."""

    #: Accepted ones with an authority, each of them judged.
    judged: int = 0
    #: Refused and repeated ones with an authority; they carried out nothing.
    refused: int = 0
    #: Of the judged: grants about things of which the log does not say where they are (volumes, retired jobs). Only sequence, credential
    #: and sender were judged.
    unplaced: int = 0
    without_authority: int = 0
    #: Of those: commands that name a person, after a token of a person was first issued.
    unsigned: int = 0


class RightsAudit:
    """Judges the commits of a log in their order, on books of its own."""

    def __init__(self) -> None:
        self.history = AccessHistory()
        self.books = RightsBooks()
        self._judged = self._refused = self._unplaced = self._without = self._unsigned = 0
        #: {array: the command that stops it}: its elements' ends name it, too, without being answers.
        self._stops: dict[str, str] = {}
        self._answers: dict[tuple[int, str, Verb, Target], bool] = {}

    def take(self, sequence: int, commit: Commit) -> str:
        """Judge the next commit, then fold it. Return what is wrong with it, "" if nothing is."""
        wrong = ""
        signed: set[str] = set()
        for event in commit.events:
            if event.authority is not None:
                if event.cause not in signed:
                    signed.add(event.cause)
                    refused = isinstance(event, REFUSALS)
                    self._refused += refused
                    self._judged += not refused
                wrong = wrong or self._wrong(sequence, commit, event, event.authority)
        self._count_others(commit)
        for event in commit.events:
            self.history.fold(sequence, event)
            self.books.fold(sequence, event)
        return wrong

    @property
    def commands(self) -> CommandCount:
        """Counts so far."""
        return CommandCount(self._judged, self._refused, self._unplaced, self._without, self._unsigned)

    # ------------------------------------------------------------------------------- commands with an authority

    def _wrong(self, sequence: int, commit: Commit, event: ev.Event, authority: Authority) -> str:
        known = type(event) in EVENT_NEEDS or isinstance(event, REFUSALS + ACCOMPANYING)
        if not event.cause.startswith(COMMAND) or not known:
            return f"I13: {type(event).__name__} has an authority and answers no command"
        if isinstance(event, REFUSALS):
            return ""
        fault = self._fault_of(sequence, authority) or _fault_of_sender(event, authority)
        if not fault:
            missing = next(self._missing(sequence, commit, event, authority), "")
            at = sequence - 1 if commit.writer == WRITER else authority.rights
            fault = missing and f"at sequence {at} {_sender(commit, authority)} had no {missing}"
        return fault and f"I13: {type(event).__name__} of {event.cause.removeprefix(COMMAND)[:40]}: {fault}"

    def _fault_of(self, sequence: int, authority: Authority) -> str:
        """Return what is wrong with an authority, whatever was asked for by it; "" if nothing is."""
        rights = authority.rights
        if rights >= sequence:
            return f"its rights are those of sequence {rights}, which is not before it"
        credential = self.history.credential_at(rights, authority.via)
        if credential is None:
            return f"{authority.via} did not count at sequence {rights}"
        if credential.principal != authority.principal:
            return f"{authority.via} is {credential.principal}'s, not {authority.principal}'s"
        if authority.act_as and not self._is_admin(rights, authority.principal):
            return f"{authority.principal} acts for {authority.act_as} and was no admin of the cluster at {rights}"
        return ""

    def _is_admin(self, sequence: int, principal: str) -> bool:
        history = self.history
        return history.is_active_at(sequence, principal) and any(
            grant.role == "admin" for grant in history.held_at(sequence, principal)
        )

    def _missing(self, sequence: int, commit: Commit, event: ev.Event, authority: Authority) -> Iterator[str]:
        """Yield each right that was missing."""
        credential = self.history.credential_at(authority.rights, authority.via)
        assert credential is not None, "checked before"
        user, access = user_of(authority), commit.writer == WRITER
        at, principal = (sequence - 1, user) if access else (authority.rights, authority.principal)
        for need in self._needs(sequence, commit, event):
            if isinstance(need, RoleNeed):
                yield from self._missing_role(at, principal, need, credential)
            elif need.kind == "own" and need.name == principal:
                continue
            else:
                for target in targets_of(need, self.books.at(at), user):
                    if not self._may(at, principal, need.verb, target, credential):
                        yield f"{need.verb} on {_words(target)}"

    def _may(self, at: int, principal: str, verb: Verb, target: Target, credential: Credential) -> bool:
        if not credential.allows(verb, target):
            return False
        key = (bisect_right(self.history.changes, at), principal, verb, target)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self._answers[key] = self.history.may_at(at, principal, verb, target)
        return answer

    def _missing_role(self, at: int, principal: str, need: RoleNeed, credential: Credential) -> Iterator[str]:
        scope = parse_scope(need.scope)
        target = self._scope_target(scope, at)
        if target is None:
            self._unplaced += 1
            return
        limits = credential.allows("rights:grant", target) or credential.allows("session:share", target)
        if not limits or not self.history.may_grant_at(at, principal, need.role, scope, target):
            yield f"right to give or take {need.role} in {scope}"

    def _scope_target(self, scope: Scope, at: int) -> Target | None:
        """Return the thing that a scope names; None where the log does not say where it is."""
        kind, name = scope
        if kind == "job":
            return self.books.job_at(name, at)
        if kind == "queue":
            return self.books.at(at).queue(name)
        if kind == "volume":
            return self.books.at(at).volume(name)
        return Target(pool=name if kind == "pool" else "", project=name if kind == "project" else "")

    def _needs(self, sequence: int, commit: Commit, event: ev.Event) -> list[Need | RoleNeed]:
        if isinstance(event, ev.TokenRevoked | ev.SessionEnded):
            via = TOKEN + event.token if isinstance(event, ev.TokenRevoked) else SESSION + event.session
            held = self.history.credential_at(sequence - 1, via)
            return [Need("rights:grant", "own", held.principal)] if held is not None else []
        if isinstance(event, ev.QueueConfigured) and self._is_made_for_others(commit, event):
            return []
        needs = EVENT_NEEDS.get(type(event))
        return [*needs(event)] if needs is not None else []

    def _is_made_for_others(self, commit: Commit, event: ev.QueueConfigured) -> bool:
        """Return True for a queue that was missing above one that the command names: it is made without limits."""
        if event.path in self.books.queues or event.settings not in (None, QueueSettings()):
            return False
        return any(
            isinstance(other, ev.QueueConfigured)
            and other.cause == event.cause
            and other.path.startswith(f"{event.path}/")
            for other in commit.events
        )

    # ------------------------------------------------------------------------------- commands without one

    def _count_others(self, commit: Commit) -> None:
        found: dict[str, bool] = {}
        for event in commit.events:
            cause = event.cause
            if event.authority is None and cause.startswith(COMMAND) and self._is_answer(event):
                found[cause] = found.get(cause, False) or bool(_by(event))
            self._follow_stops(event)
        self._without += len(found)
        if self.history.has_tokens_of_people:
            self._unsigned += sum(found.values())

    def _is_answer(self, event: ev.Event) -> bool:
        """Return True if an event answers the command that it names, False for a later consequence of it."""
        if isinstance(event, ev.NodeDraining | ev.NodeUncordoned) and event.setter != "person":
            return False
        if isinstance(event, ev.RolloutEnded) and not event.cancelled:
            return False
        if isinstance(event, ev.OfferWithdrawn) and event.reason != "hold":
            return False
        if isinstance(event, ev.JobCancelled | ev.JobStopRequested):
            return self._stops.get(array_of(event.job) or "") != event.cause
        return type(event) in EVENT_NEEDS or isinstance(event, REFUSALS + ACCOMPANYING)

    def _follow_stops(self, event: ev.Event) -> None:
        if isinstance(event, ev.JobStopRequested) and "_" not in event.job:
            self._stops[event.job] = event.cause
        elif isinstance(event, ev.JobsRetired):
            for job in event.jobs:
                self._stops.pop(job, None)


def _by(event: ev.Event) -> str:
    return getattr(event, "by", "") or getattr(event, "user", "")


def _fault_of_sender(event: ev.Event, authority: Authority) -> str:
    named, user = _by(event), user_of(authority)
    if named == user or (not named and not isinstance(event, ev.JobSubmitted)):
        return ""
    return f'it names "{named}", and its authority is {user}\'s'


def _sender(commit: Commit, authority: Authority) -> str:
    return user_of(authority) if commit.writer == WRITER else authority.principal


def _words(target: Target) -> str:
    if target == CLUSTER:
        return "the cluster"
    return " ".join(f"{name}:{value}" for name, value in target._asdict().items() if value)
