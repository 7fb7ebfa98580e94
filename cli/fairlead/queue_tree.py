"""Queues as a table that shows their tree: amounts, what is borrowed, and a bar where there is room. Pure.

Amounts are GPUs; a queue whose settings speak of CPUs or memory only shows those in `-o wide`.
"""

from collections.abc import Sequence

from fairlead.render import Column
from fairlead_schemas.http.api import Queue
from fairlead_schemas.units.quantities import format_memory, format_milli

#: Sign for no limit, and for nothing guaranteed.
NONE = "-"
#: Signs of a bar: used within the guarantee, borrowed, guaranteed and free, free to borrow.
WITHIN, BORROWED, OWED, FREE = "#", "+", "-", "."
BAR_LEGEND = f"{WITHIN} used  {BORROWED} borrowed  {OWED} guaranteed and free  {FREE} free up to the maximum"


def ordered(queues: Sequence[Queue]) -> list[Queue]:
    """Return the queues sorted by path, each queue before those below it."""
    return sorted(queues, key=lambda queue: queue.path.split("/"))


def indented(queues: Sequence[Queue]) -> dict[str, str]:
    """{path: its name, indented below its parent}; the whole path where the parent is not shown."""
    names: dict[str, str] = {}
    depths: dict[str, int] = {}
    for queue in ordered(queues):
        above, _, name = queue.path.rpartition("/")
        depths[queue.path] = depths[above] + 1 if above in depths else 0
        names[queue.path] = f"{'  ' * depths[queue.path]}{name}" if above in depths else queue.path
    return names


def bar(queue: Queue, width: int, most: int) -> str:
    """GPUs in use against the guarantee and the maximum, `most` milli-GPU filling `width` signs."""
    used, owed = queue.used.get("gpu", 0), queue.guaranteed.get("gpu", 0)
    top = max(queue.maximum.get("gpu", 0), used, owed)
    if not top or not most:
        return ""

    def signs(amount: int) -> int:
        return -(-amount * width // most)

    within = min(used, owed)
    cells = [(within, WITHIN), (used, BORROWED), (max(used, owed), OWED), (top, FREE)]
    text = ""
    for amount, sign in cells:
        text += sign * (signs(amount) - len(text))
    return f"[{text}]"


def columns(queues: Sequence[Queue], bar_width: int = 0) -> tuple[Column, ...]:
    """The columns for these queues; with `bar_width` a bar of so many signs at the end."""
    names = indented(queues)
    most = max(
        (max(q.used.get("gpu", 0), q.guaranteed.get("gpu", 0), q.maximum.get("gpu", 0)) for q in queues), default=0
    )
    drawn = (Column("GPUS", lambda q: bar(q, bar_width, most)),) if bar_width and most else ()
    return (
        Column("QUEUE", lambda q: names[q.path]),
        Column("GUARANTEED", lambda q: _gpus(q.guaranteed), right=True), Column("USED", lambda q: _gpus(q.used, "0"), right=True),
        Column("MAX", lambda q: _gpus(q.maximum), right=True), Column("BORROWED", lambda q: _gpus(q.borrowed), right=True),
        Column("WAITING", lambda q: str(q.waiting), right=True), Column("RUNNING", lambda q: str(q.running), right=True),
        *drawn,
        Column("OFFERED", _offered, wide=True, right=True), Column("POOL", lambda q: q.pool, wide=True), Column("WEIGHT", lambda q: str(q.settings.get("weight", 1)), wide=True, right=True),
        Column("PRIORITY", lambda q: str(q.settings.get("priority", 0)), wide=True, right=True),
        Column("CPUS", lambda q: _of(q, "cpu"), wide=True, right=True), Column("MEMORY", lambda q: _of(q, "memory"), wide=True, right=True),
        Column("MODELS", _models, wide=True), Column("USERS", _users, wide=True), Column("BUDGET", _budget, wide=True),
        Column("YIELDED", lambda q: str(q.preempted), wide=True, right=True), Column("PATH", lambda q: q.path, wide=True),
    )  # fmt: skip


def _gpus(amounts: dict[str, int], none: str = NONE) -> str:
    return format_milli(amounts["gpu"]) if "gpu" in amounts else none


def _offered(queue: Queue) -> str:
    """GPUs that count against its limits and have no place yet."""
    return format_milli(queue.charged.get("gpu", 0) - queue.used.get("gpu", 0))


def _of(queue: Queue, resource: str) -> str:
    """`12/256`: used, and the maximum where there is one."""
    shown = format_memory if resource == "memory" else format_milli
    used = queue.used.get(resource, 0)
    return f"{shown(used)}/{shown(queue.maximum[resource])}" if resource in queue.maximum else shown(used)


def _models(queue: Queue) -> str:
    """Return `NVIDIA-L40S 2/8`: used and guaranteed GPUs of each model with either amount."""
    named = sorted({r for r in (*queue.used, *queue.guaranteed) if r.startswith("gpu:")})
    return ", ".join(
        f"{r.removeprefix('gpu:')} {format_milli(queue.used.get(r, 0))}/{format_milli(queue.guaranteed.get(r, 0))}"
        for r in named
    )


def _users(queue: Queue) -> str:
    """`ada 4, bob 2`: GPUs held by each, where single users are limited."""
    return ", ".join(f"{user} {format_milli(amounts.get('gpu', 0))}" for user, amounts in queue.users.items())


def _budget(queue: Queue) -> str:
    budget = queue.budget
    if budget is None:
        return ""
    reached = f", {budget.percent_reached} % used" if budget.percent_reached else ""
    return f"{budget.gpu_hours:g} GPU-hours a {budget.period}{reached}"
