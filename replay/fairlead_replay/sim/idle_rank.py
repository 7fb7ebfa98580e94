"""What a simulated rank says of itself, when somebody typed last included."""

from fairlead_schemas.samples import RunResources


class RankResources(RunResources, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """As the watch reads it."""

    #: Unix ns; 0: nobody has, since its start. None: not known.
    terminal_ns: int | None = None
