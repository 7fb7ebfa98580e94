"""Sentences about what was done by a command: by whom, and by which grant, from the event that answered it.

They name principals by their ids; a reader that knows their names puts these in.
"""

from fairlead_rights.access_list import Grant
from fairlead_rights.command_rights import EVENT_NEEDS, Need, Things, targets_of, user_of
from fairlead_rights.history import AccessHistory
from fairlead_rights.roles import OWNER_VERBS
from fairlead_schemas.policies.rights import is_group
from fairlead_schemas.wire import events as ev

_WORDS: dict[type, str] = {
    ev.JobSubmitted: "submitted",
    ev.JobCancelled: "cancelled",
    ev.JobStopRequested: "stopped",
    ev.JobSignalRequested: "signalled",
    ev.JobHeld: "held",
    ev.OfferWithdrawn: "held",
    ev.JobReleased: "released",
    ev.JobExtended: "extended",
    ev.JobUpdated: "updated",
}


def done_by(event: ev.Event, history: AccessHistory, things: Things) -> str:
    """Return a sentence: "cancelled by p1: operator in queue:research". "" for an event without an authority.

    `things`: places as of the sequence that the authority names.
    """
    authority = event.authority
    if authority is None:
        return ""
    actor = authority.principal + (f" for {authority.act_as}" if authority.act_as else "")
    reason = _reason(event, history, things)
    return f"{_verb(event)} by {actor}" + (f": {reason}" if reason else "")


def _verb(event: ev.Event) -> str:
    if isinstance(event, ev.JobMoved):
        return f"moved to {event.queue}"
    return _WORDS.get(type(event), type(event).__name__)


def _reason(event: ev.Event, history: AccessHistory, things: Things) -> str:
    """Return the right that allowed the event's first need; "" where the table names none."""
    authority = event.authority
    assert authority is not None, "asked only where there is one"
    needs = EVENT_NEEDS[type(event)](event) if type(event) in EVENT_NEEDS else []
    for need in needs:
        if not isinstance(need, Need):
            continue
        for target in targets_of(need, things, user_of(authority)):
            if target.owner == authority.principal and need.verb in OWNER_VERBS:
                return "its owner"
            grants = history.why_at(authority.rights, authority.principal, need.verb, target)
            return _words(grants[0]) if grants else ""
    return ""


def _words(grant: Grant) -> str:
    member = f" as a member of {grant.subject}" if is_group(grant.subject) else ""
    return f"{grant.role} in {grant.scope}{member}"
