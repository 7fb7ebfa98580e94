"""Plans to move runs so that a big job starts, as the explainer answers them and the API shows them."""

import msgspec


class _Words(msgspec.Struct, frozen=True, kw_only=True):
    pass


class DefragMove(_Words, frozen=True, kw_only=True):
    """A run that would yield here and find a place there."""

    job: str
    attempt: int
    gpu_milli: int
    #: Ids of nodes, in the order of its ranks.
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    #: GPU-seconds that the move costs: work lost, and time in which it runs nowhere.
    cost_gpu_s: int


class DefragPlan(_Words, frozen=True, kw_only=True):
    """For one job that fits nowhere now: what would be moved, or why nothing would."""

    job: str
    attempt: int
    gpu_milli: int
    moves: tuple[DefragMove, ...] = ()
    #: Nodes on which the job would start.
    nodes: tuple[str, ...] = ()
    #: GPU-seconds: what the job gains (as long again as it has waited), and what all moves cost.
    gain_gpu_s: int = 0
    cost_gpu_s: int = 0
    #: young | kept | few_free | no_moves | costs_more; "": it would be done, where the pool asks for it.
    why_not: str = ""
    #: The same as a sentence.
    message: str = ""


class Defrag(_Words, frozen=True, kw_only=True):
    """Planned moves in a pool, as of a log sequence. Each plan is independent of the others; one is carried out at a
    time.
    """

    pool: str
    #: Whether the pool asks for it (`defragment`): else nothing is ever moved.
    on: bool
    plans: tuple[DefragPlan, ...] = ()
    sequence: int = 0
