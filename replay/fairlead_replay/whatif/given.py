"""Values of what was given: commands of people, facts of nodes, and events of writers that are not played."""

from typing import NamedTuple

from fairlead_bus.core import Decision
from fairlead_replay.whatif.commands import Command
from fairlead_schemas.wire.events import RunOutcome
from fairlead_schemas.wire.resources import Inventory


class GivenCommand(NamedTuple):
    """Command of a person or service. Those of one message are decided together."""

    at_ns: int
    #: Sequence of the commit that answered it: commands of one commit were one message.
    message: int
    writer: str
    position: int
    command: Command


class GivenFact(NamedTuple):
    """What happened to a node."""

    at_ns: int
    node: str
    #: joined | changed | silent | quiet | heard | ailing | well | struck (its runs, or one job's, have ended without cause)
    what: str
    inventory: Inventory | None = None
    incarnation: str = ""
    boot_id: str = ""
    silent_ns: int = 0
    gpu: str = ""
    code: str = ""
    evidence: str = ""
    job: str = ""
    outcome: RunOutcome = "stopped"
    exit_code: int | None = None


class GivenEvents(NamedTuple):
    """Events of a writer that is not played, of one commit."""

    at_ns: int
    #: Sequence of the commit.
    message: int
    writer: str
    decision: Decision
    #: Of events about a run: when it had started.
    started_ns: int = 0


type Given = GivenCommand | GivenFact | GivenEvents
