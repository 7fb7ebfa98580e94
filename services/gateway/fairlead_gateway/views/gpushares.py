"""Each queue's fair share of its pool's GPUs, as a yardstick for boards. Pure.

A pool's GPUs are divided from the top down, among the queues of one level that have jobs (waiting or running).
First each gets its guarantee, then the rest is divided by weight, to each at most its maximum; what that leaves is
divided among the others. A queue without jobs has no share. The amount that each queue requests is not looked at.
The order of turns is the sequencer's, which may consider other resources or past use: so a queue may rightly hold
more or less than this for a while.
"""

from collections.abc import Mapping

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queuedocs import RUNNING, WAITING
from fairlead_gateway.views.rows import QueueRow
from fairlead_schemas.queuefile.settings import QueueSettings

_NONE = QueueSettings()


def fair_shares(views: Views, pools: Mapping[str, int]) -> dict[str, int]:
    """{path: milli-GPUs} of every queue; `pools`: {pool: its milli-GPUs}."""
    rows = {row.path: row for row in views.queues.existing()}
    busy = _busy(rows)
    below: dict[str, list[str]] = {}
    for path in rows:
        above = path.rpartition("/")[0]
        below.setdefault(above or f"{views.queues.pool_of(path)}:", []).append(path)
    shares: dict[str, int] = dict.fromkeys(rows, 0)
    todo = [(f"{pool}:", milli) for pool, milli in pools.items()]
    while todo:
        above, milli = todo.pop()
        siblings = [path for path in below.get(above, ()) if path in busy]
        divided = _divided(views, rows, siblings, milli)
        shares.update(divided)
        todo += divided.items()
    return shares


def _busy(rows: Mapping[str, QueueRow]) -> set[str]:
    """Queues that have jobs, and all above them."""
    found: set[str] = set()
    for path, row in rows.items():
        if row.unborn or any(row.states.get(state) for state in (*WAITING, *RUNNING)):
            parts = path.split("/")
            found |= {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    return found


def _divided(views: Views, rows: Mapping[str, QueueRow], paths: list[str], milli: int) -> dict[str, int]:
    """Return each sibling's part of `milli` (thousandths of a GPU). Where guarantees together exceed it, each gets its
    part of them.
    """
    settings = {path: rows[path].settings or _NONE for path in paths}
    promises = {path: views.queues.guaranteed(path).get("gpu", 0) for path in paths}
    most = {path: settings[path].maximum.get("gpu", max(milli, promises[path])) for path in paths}
    share = {path: min(most[path], promises[path]) for path in paths}
    promised = sum(share.values())
    if promised > milli:
        return {path: share[path] * milli // promised for path in paths}
    left = milli - promised
    open_: list[str] = [path for path in paths if share[path] < most[path]]
    while left > 0 and open_:
        weights = sum(settings[path].weight for path in open_)
        more: dict[str, int] = {
            path: min(most[path] - share[path], left * settings[path].weight // weights) for path in open_
        }
        if not any(more.values()):
            break  # less than a thousandth for each
        for path, amount in more.items():
            share[path] += amount
        left -= sum(more.values())
        open_ = [path for path in open_ if share[path] < most[path]]
    return share
