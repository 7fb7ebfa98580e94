"""What telemetry asks back because it lies idle: kept with the run until the run ends or is used again. Pure data."""

from collections.abc import Sequence

import msgspec

from fairlead_schemas.idle import IdleAction, IdleRule


class Idle(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One policy's wish for a run."""

    #: The event that asked.
    cause: str
    scope: str
    rule: IdleRule
    action: IdleAction
    #: Only if somebody waits who can use what it holds.
    on_demand: bool
    at_ns: int


#: What asks for nothing: the owner is told, or nobody.
TELLS_ONLY = ("note", "warn")


def decisive(wishes: Sequence[Idle]) -> Idle:
    """The wish that counts when several policies ask: one that does not wait for anybody before the others, the first of them."""
    return next((each for each in wishes if not each.on_demand), wishes[0])
