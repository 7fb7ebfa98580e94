"""Reclaims of idle runs requested by telemetry: kept with the run until the run ends or is used again. Pure data."""

from collections.abc import Sequence

import msgspec

from fairlead_schemas.policies.idle import IdleAction, IdleRule


class Idle(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Reclaim of a run by one idle policy."""

    #: The event that asked.
    cause: str
    scope: str
    rule: IdleRule
    action: IdleAction
    #: Only if a waiting job can use what it holds.
    on_demand: bool
    at_ns: int


#: Actions that ask for nothing: the owner is notified, or no one.
TELLS_ONLY = ("note", "warn")


def decisive(wishes: Sequence[Idle]) -> Idle:
    """Return the reclaim that counts when several policies request one: the first that waits for no other job, else the first."""
    return next((each for each in wishes if not each.on_demand), wishes[0])
