"""Table of event handlers for the access core's state: the effects that all who fold it share."""

from fairlead_bus.core import EventHandlers, apply_events
from fairlead_rights.effects import EFFECTS
from fairlead_rights.state import AccessState
from fairlead_schemas.wire.commit import Commit

WRITER = "access"

HANDLERS: EventHandlers[AccessState] = {**EFFECTS}


def fold(state: AccessState, seq: int, commit: Commit) -> None:
    """Fold one commit of any writer: others' queues end grants."""
    apply_events(HANDLERS, state, seq, commit)
