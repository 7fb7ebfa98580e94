"""The view of queues and pools: settings, what is charged to whom, and counts that the view of jobs keeps up to date; and the view of prices."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from fairlead_gateway.views.rows import BudgetUse, ClosureRow, PoolRow, QueueRow
from fairlead_schemas.queuefile.settings import (
    DEFAULT_POOL,
    MODEL_LABEL,
    Amounts,
    PoolSettings,
    QueueSettings,
    gpu_class,
)
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request

_MODEL = f"{MODEL_LABEL}="


@lru_cache(4096)
def charge_of(request: Request) -> tuple[tuple[str, int], ...]:
    """Return the charge of an attempt: (resource, amount) over all its nodes. A GPU of a model that the request names
    counts under the model, too.
    """
    amounts = {
        "gpu": request.gpu_milli_total,
        "cpu": request.cpu_milli_total,
        "memory": request.memory_mib_total,
    }
    for kind in request.kinds:
        for label in kind.selector:
            if label.startswith(_MODEL):
                model = gpu_class(label.removeprefix(_MODEL))
                amounts[model] = amounts.get(model, 0) + kind.nodes * kind.gpu_milli
    return tuple((resource, amount) for resource, amount in amounts.items() if amount)


def add(total: Amounts, amounts: tuple[tuple[str, int], ...], sign: int = 1) -> None:
    """Add amounts to a sum in place; resources that fall to 0 are removed."""
    get = total.get
    for resource, amount in amounts:
        new = get(resource, 0) + sign * amount
        if new:
            total[resource] = new
        else:
            total.pop(resource, None)


class QueuesView:
    """Queues by path (those above a queue always have a row, too), and pools by name."""

    def __init__(self) -> None:
        self.rows: dict[str, QueueRow] = {}
        self.pools: dict[str, PoolRow] = {}
        #: {path: its row and all above it, the nearest first} (derived)
        self._lines: dict[str, tuple[QueueRow, ...]] = {}
        #: {path: what it is guaranteed} (derived; None: limits have changed)
        self._guaranteed: dict[str, Amounts] | None = None
        self.handlers = {
            ev.QueueConfigured: self._configured,
            ev.QueueRemoved: self._removed,
            ev.PoolConfigured: self._pool_configured,
            ev.PoolRemoved: self._pool_removed,
            ev.BudgetReached: self._budget_reached,
            ev.QueueHeld: self._held,
            ev.QueueDrained: self._drained,
            ev.QueueReleased: self._released,
        }

    def of(self, path: str) -> QueueRow:
        """The row of a queue that exists, made when first named."""
        row = self.line(path)[0]
        row.exists = True
        return row

    def line(self, path: str) -> tuple[QueueRow, ...]:
        """The row of a queue and of those above it, the nearest first."""
        found = self._lines.get(path)
        if found is None:
            row = self.rows.get(path)
            if row is None:
                row = self.rows[path] = QueueRow(path, charged={}, used={}, users={}, states={})
            above = path.rpartition("/")[0]
            found = self._lines[path] = (row, *self.line(above)) if above else (row,)
        return found

    def existing(self) -> Iterator[QueueRow]:
        """Rows of the queues that exist, by path."""
        return (row for _, row in sorted(self.rows.items()) if row.exists)

    def pool_of(self, path: str) -> str:
        """The pool of a queue: that of the one at the top."""
        settings = self.line(path)[-1].settings
        return (settings.pool if settings else "") or DEFAULT_POOL

    def guaranteed(self, path: str) -> Amounts:
        """Return a queue's guarantee: the amounts that it names, and for other resources the sum over the queues below it."""
        if self._guaranteed is None:
            self._guaranteed = {}
            for row in sorted(self.existing(), key=lambda row: -row.path.count("/")):
                own = self._guaranteed.setdefault(row.path, {})
                own.update(row.settings.guaranteed if row.settings else {})
                above = row.path.rpartition("/")[0]
                if above:
                    add(self._guaranteed.setdefault(above, {}), tuple(own.items()))
        return self._guaranteed.get(path, {})

    def settings(self, path: str) -> QueueSettings:
        """Return a queue's settings; the defaults where it has none."""
        row = self.rows.get(path)
        return row.settings if row is not None and row.settings else QueueSettings()

    def ceiling(self, path: str, resource: str) -> int | None:
        """Return the most of a resource that may be charged to a queue by its maximum and its limit on borrowing; None: no limit."""
        settings = self.settings(path)
        most, borrowed = settings.maximum.get(resource), settings.borrowing.get(resource)
        if borrowed is None:
            return most
        beyond = self.guaranteed(path).get(resource, 0) + borrowed
        return beyond if most is None else min(most, beyond)

    def charge(self, path: str, user: str, request: Request, sign: int = 1) -> None:
        """Count an attempt for its queue, for all above it and for its user (-1: no longer)."""
        amounts = charge_of(request)
        line = self.line(path)
        for row in line:
            add(row.charged, amounts, sign)
        users = line[0].users
        own = users.get(user)
        if own is None:
            own = users[user] = {}
        add(own, amounts, sign)
        if not own:
            del users[user]

    def use(self, path: str, request: Request, sign: int = 1) -> None:
        """Count an attempt's charge as placed (`sign` -1: as no longer placed)."""
        amounts = charge_of(request)
        for row in self.line(path):
            add(row.used, amounts, sign)

    def _configured(self, event: ev.QueueConfigured, _seq: int, _at_ns: int) -> None:
        settings = event.settings
        if settings is None:
            quota = event.gpu_quota_milli
            settings = QueueSettings() if quota is None else QueueSettings(maximum={"gpu": quota})
        self.of(event.path).settings = settings
        self._guaranteed = None

    def _removed(self, event: ev.QueueRemoved, _seq: int, _at_ns: int) -> None:
        row = self.rows[event.path]
        row.exists, row.settings, row.reached, row.held, row.drained = False, None, None, None, None
        self._guaranteed = None

    def _pool_configured(self, event: ev.PoolConfigured, _seq: int, _at_ns: int) -> None:
        self.pools[event.pool] = PoolRow(event.pool, event.settings)

    def _pool_removed(self, event: ev.PoolRemoved, _seq: int, _at_ns: int) -> None:
        self.pools.pop(event.pool, None)

    def _budget_reached(self, event: ev.BudgetReached, _seq: int, _at_ns: int) -> None:
        row = self.of(event.queue)
        row.reached = BudgetUse(event.percent, event.spent, event.budget, event.period_ns)

    def _held(self, event: ev.QueueHeld, _seq: int, at_ns: int) -> None:
        self.of(event.path).held = ClosureRow(event.by, event.reason, at_ns)

    def _drained(self, event: ev.QueueDrained, _seq: int, at_ns: int) -> None:
        self.of(event.path).drained = ClosureRow(event.by, event.reason, at_ns)

    def _released(self, event: ev.QueueReleased, _seq: int, _at_ns: int) -> None:
        row = self.of(event.path)
        row.held = row.drained = None

    def holding(self, path: str) -> QueueRow | None:
        """Return the queue, or the nearest above it, that is held; None for none."""
        return next((row for row in self.line(path) if row.held is not None), None)

    def pool_rows(self) -> list[PoolRow]:
        """Return pools by name; the default one is there even when it was never configured."""
        default = {DEFAULT_POOL: PoolRow(DEFAULT_POOL, PoolSettings())}
        return [row for _, row in sorted((default | self.pools).items())]


class SetPriceRow(NamedTuple):
    """Price of an hour of one whole GPU of a model, from a moment on (Unix ns)."""

    model: str
    micro: int
    currency: str
    from_ns: int
    by: str


class PricesView:
    """Prices that were set, by model and moment: for each the last one."""

    def __init__(self) -> None:
        #: {(model, Unix ns from which it holds): price}
        self.rows: dict[tuple[str, int], SetPriceRow] = {}
        self.handlers = {ev.PriceSet: self._set}

    def _set(self, event: ev.PriceSet, _seq: int, _at_ns: int) -> None:
        self.rows[event.model, event.from_ns] = SetPriceRow(
            event.model, event.micro, event.currency, event.from_ns, event.by
        )
