"""Documents of queues and pools, built from rows on request; and each queue's fair share of its pool's GPUs, as a
yardstick for boards. Pure.

A pool's GPUs are divided from the top down, among the queues of one level that have jobs (waiting or running).
First each gets its guarantee, then the rest is divided by weight, to each at most its maximum; what that leaves is
divided among the others. A queue without jobs has no share. The amount that each queue requests is not looked at.
The order of turns is the sequencer's, which may consider other resources or past use: so a queue may rightly hold
more or less than this for a while.
"""

from collections.abc import Iterable, Mapping

import msgspec

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queues import add
from fairlead_gateway.views.rows import ClosureRow, PoolRow, QueueRow
from fairlead_schemas.http import api
from fairlead_schemas.queries.explainer import QueueStanding
from fairlead_schemas.queuefile.amounts import gpu_hours_word
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, POOL_LABEL, Amounts, Budget, QueueSettings
from fairlead_schemas.queuefile.settings_format import QueueRole, pool_words, queue_words, role_words
from fairlead_schemas.units.quantities import MILLI
from fairlead_schemas.units.timestamps import calendar_period, rfc3339

#: Source of the grants that queue files state.
QUEUE_FILES = "queues"

WAITING = ("scheduled", "queued", "held", "offered")
RUNNING = ("placed", "running", "stopping")


class _Sum(msgspec.Struct):
    """Counts over a queue and all queues below it."""

    waiting: int = 0
    running: int = 0
    preempted: int = 0
    users: dict[str, Amounts] = {}


def queue_document(views: Views, row: QueueRow) -> api.Queue:
    """Return one queue as clients see it; elements not offered yet count as waiting."""
    return queue_documents(views, [row])[0]


def queue_documents(views: Views, rows: Iterable[QueueRow]) -> list[api.Queue]:
    """Several queues, in the order given: one pass over all queues, however many are asked for."""
    wanted = {row.path: _Sum() for row in rows}
    for row in views.queues.rows.values():
        for above in views.queues.line(row.path):
            if (total := wanted.get(above.path)) is not None:
                _count(total, row, with_users=bool(above.settings and above.settings.users))
    roles = _roles(views)
    return [_document(views, views.queues.rows[path], total, roles.get(path, ())) for path, total in wanted.items()]


def _roles(views: Views) -> dict[str, list[tuple[str, QueueRole]]]:
    """Return the roles that queue files state, as a file has them: {path: (login name or subject, role) pairs}."""
    found: dict[str, list[tuple[str, QueueRole]]] = {}
    for subject, grants in views.access.access.grants.items():
        for (role, scope), sources in grants.items():
            if scope.kind == "queue" and QUEUE_FILES in sources and role != "admin":
                found.setdefault(scope.name, []).append((views.name_of(subject), role))
    return found


def _count(total: _Sum, row: QueueRow, *, with_users: bool) -> None:
    states = row.states.get
    total.waiting += row.unborn + sum(states(state, 0) for state in WAITING)
    total.running += sum(states(state, 0) for state in RUNNING)
    total.preempted += row.preempted
    for user, amounts in row.users.items() if with_users else ():
        add(total.users.setdefault(user, {}), tuple(amounts.items()))


def _document(views: Views, row: QueueRow, total: _Sum, roles: Iterable[tuple[str, QueueRole]]) -> api.Queue:
    settings = row.settings or QueueSettings()
    charged, used, guaranteed = row.charged, row.used, views.queues.guaranteed(row.path)
    return api.Queue(
        path=row.path,
        pool=views.queues.pool_of(row.path),
        settings={**queue_words(_with_names(views, settings)), **role_words(roles)},
        guaranteed=dict(guaranteed),
        maximum=settings.maximum,
        charged=dict(charged),
        used=dict(used),
        gpu_milli_charged=charged.get("gpu", 0),
        borrowed={resource: max(0, used.get(resource, 0) - amount) for resource, amount in guaranteed.items()},
        gpu_quota_milli=settings.maximum.get("gpu"),
        waiting=total.waiting,
        running=total.running,
        users=dict(sorted((views.name_of(user), amounts) for user, amounts in total.users.items())),
        preempted=total.preempted,
        budget=None if settings.budget is None else _budget(row, settings.budget, views.at_ns),
        held=_closure(views, row.held),
        drained=_closure(views, row.drained),
        sequence=views.sequence,
    )


def _closure(views: Views, row: ClosureRow | None) -> api.QueueClosure | None:
    if row is None:
        return None
    return api.QueueClosure(by=views.name_of(row.by), reason=row.reason, since=rfc3339(row.at_ns))


def _with_names(views: Views, settings: QueueSettings) -> QueueSettings:
    """Return settings that name users as a queue file does: by login names."""
    users = {views.name_of(user): amounts for user, amounts in settings.users.items()}
    return msgspec.structs.replace(settings, users=users) if users else settings


def _budget(row: QueueRow, budget: Budget, now_ns: int) -> api.QueueBudget:
    document = api.QueueBudget(gpu_hours=float(gpu_hours_word(budget.gpu_milli_s)), period=budget.period)
    reached = row.reached
    if reached is not None and now_ns < calendar_period(budget.period, reached.period_ns)[1]:
        document.percent_reached = reached.percent
        document.spent_gpu_hours = float(gpu_hours_word(reached.spent))
    return document


def add_shares(views: Views, documents: Iterable[api.Queue], standings: Mapping[str, QueueStanding]) -> None:
    """Add to documents of queues their shares; `standings`: {path: as the explainer counts them}, none of a queue that is new."""
    shares = fair_shares(views, pool_gpus(views))
    for document in documents:
        standing = standings.get(document.path)
        if standing is None:
            continue
        document.share = share = api.QueueShare(
            fair_share_gpu_milli=shares.get(document.path, 0), kept=standing.kept, past_use=standing.past_use
        )
        settings = views.queues.rows[document.path].settings
        if standing.spent is not None and settings is not None and settings.budget is not None:
            share.spent_gpu_hours = float(gpu_hours_word(standing.spent))
            share.spent_percent = round(100 * standing.spent / settings.budget.gpu_milli_s, 1)


def pool_gpus(views: Views) -> dict[str, int]:
    """{pool: milli-GPUs of its nodes}."""
    found: dict[str, int] = {}
    for node in views.nodes.rows.values():
        pool = node.inventory.labels.get(POOL_LABEL) or DEFAULT_POOL
        found[pool] = found.get(pool, 0) + MILLI * len(node.inventory.gpus)
    return found


def pool_document(views: Views, row: PoolRow) -> api.Pool:
    """Return one pool as clients see it."""
    nodes = [
        node
        for node in views.nodes.rows.values()
        if (node.inventory.labels.get(POOL_LABEL) or DEFAULT_POOL) == row.name
    ]
    tops = [queue.path for queue in views.queues.existing() if "/" not in queue.path]
    return api.Pool(
        name=row.name,
        settings=pool_words(msgspec.structs.replace(row.settings, users=tuple(map(views.name_of, row.settings.users)))),
        queues=[path for path in tops if views.queues.pool_of(path) == row.name],
        nodes=len(nodes),
        gpus=sum(len(node.inventory.gpus) for node in nodes),
        sequence=views.sequence,
    )


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
