"""Queues as a table that shows their tree: amounts, what is borrowed, and a bar where there is room. Pure.

Amounts are GPUs; a queue whose settings speak of CPUs or memory only shows those in `-o wide`.

Preview of the changes that applying a queue file would make to the configuration. Pure.

Both sides are settings in the notation of a queue file with their defaults left out, so that two spellings of one value
(1 and "1000m") are no difference. Whom a change would concern is the explainer's answer (`concerned_lines`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from fairlead.render.terminal import TableColumn
from fairlead_schemas.http.api import ConcernedJob, Queue, QueueFilePreview
from fairlead_schemas.queuefile.parse import QueueFile
from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.queuefile.settings_format import pool_words, queue_words, role_words
from fairlead_schemas.units.quantities import format_memory, format_milli

#: Sign for no limit, and for nothing guaranteed.
NONE = "-"
#: Signs of a bar: used within the guarantee, borrowed, guaranteed and free, free to borrow.
WITHIN, BORROWED, OWED, FREE = "#", "+", "-", "."
#: Jobs that one line of a preview names.
NAMED_MAX = 5
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


def queue_columns(queues: Sequence[Queue], bar_width: int = 0) -> tuple[TableColumn, ...]:
    """The columns for these queues; with `bar_width` a bar of so many signs at the end."""
    names = indented(queues)
    most = max(
        (max(q.used.get("gpu", 0), q.guaranteed.get("gpu", 0), q.maximum.get("gpu", 0)) for q in queues), default=0
    )
    drawn = (TableColumn("GPUS", lambda q: bar(q, bar_width, most)),) if bar_width and most else ()
    return (
        TableColumn("QUEUE", lambda q: names[q.path]),
        TableColumn("GUARANTEED", lambda q: _gpus(q.guaranteed), right=True),
        TableColumn("USED", lambda q: _gpus(q.used, "0"), right=True),
        TableColumn("MAX", lambda q: _gpus(q.maximum), right=True),
        TableColumn("BORROWED", lambda q: _gpus(q.borrowed), right=True),
        TableColumn("WAITING", lambda q: str(q.waiting), right=True),
        TableColumn("RUNNING", lambda q: str(q.running), right=True),
        *_budget_columns(queues),
        *((TableColumn("STATE", lambda q: _state(q, queues)),) if any(q.held or q.drained for q in queues) else ()),
        *drawn,
        TableColumn("SHARE", _share, wide=True, right=True),
        TableColumn("PAST USE", _past_use, wide=True, right=True),
        TableColumn("KEPT", _kept, wide=True),
        TableColumn("OFFERED", _offered, wide=True, right=True),
        TableColumn("POOL", lambda q: q.pool, wide=True),
        TableColumn("WEIGHT", lambda q: str(q.settings.get("weight", 1)), wide=True, right=True),
        TableColumn("PRIORITY", lambda q: str(q.settings.get("priority", 0)), wide=True, right=True),
        TableColumn("CPUS", lambda q: _of(q, "cpu"), wide=True, right=True),
        TableColumn("MEMORY", lambda q: _of(q, "memory"), wide=True, right=True),
        TableColumn("MODELS", _models, wide=True),
        TableColumn("USERS", _users, wide=True),
        TableColumn("BUDGET", _budget, wide=True),
        TableColumn("YIELDED", lambda q: str(q.preempted), wide=True, right=True),
        TableColumn("ROLES", _roles, wide=True),
        TableColumn("PATH", lambda q: q.path, wide=True),
    )


def _budget_columns(queues: Sequence[Queue]) -> list[TableColumn]:
    """Return the columns of budgets, where the use of one is known."""
    if all(queue.share is None or queue.share.spent_gpu_hours is None for queue in queues):
        return []
    return [
        TableColumn("SPENT", lambda q: _known(q.share and q.share.spent_gpu_hours, "{:.3f}"), right=True),
        TableColumn("% OF BUDGET", lambda q: _known(q.share and q.share.spent_percent, "{:.1f}"), right=True),
    ]


def _known(value: float | None, form: str) -> str:
    return NONE if value is None else form.format(value)


def _share(queue: Queue) -> str:
    """GPUs that its guarantee and weight give it now."""
    return NONE if queue.share is None else format_milli(queue.share.fair_share_gpu_milli)


def _past_use(queue: Queue) -> str:
    """Average GPUs, older use counting less; nothing where its pool does not count it."""
    past = queue.share and queue.share.past_use
    return NONE if past is None else format_milli(past.get("gpu", 0))


def _kept(queue: Queue) -> str:
    """Return `2 GPUs, 16 CPUs`: idle amounts that nobody else may use."""
    kept = queue.share.kept if queue.share is not None else {}
    return ", ".join(_amount(resource, amount) for resource, amount in kept.items()) or NONE


def _amount(resource: str, amount: int) -> str:
    if resource == "memory":
        return format_memory(amount)
    unit = "GPUs" if resource == "gpu" else "CPUs" if resource == "cpu" else resource.removeprefix("gpu:")
    return f"{format_milli(amount)} {unit}"


def _state(queue: Queue, queues: Sequence[Queue]) -> str:
    """Return `held`, `drained by org`, or both: closed by itself, or by the nearest closed queue above it."""
    above = [each for each in queues if queue.path == each.path or queue.path.startswith(f"{each.path}/")]
    words: list[str] = []
    for word, closed in (("held", [q for q in above if q.held]), ("drained", [q for q in above if q.drained])):
        if closed:
            nearest = max(closed, key=lambda each: len(each.path))
            words.append(word if nearest is queue else f"{word} by {nearest.path}")
    return ", ".join(words)


def _roles(queue: Queue) -> str:
    roles: dict[str, Any] = queue.settings.get("roles", {})
    words = (f"{subject}={role if isinstance(role, str) else '+'.join(role)}" for subject, role in roles.items())
    return ",".join(words) or NONE


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
    """`ada 4/4, bob 2/2, default 0/2`: GPUs held by each of those at most, where single users are limited."""
    limits: dict[str, dict[str, Any]] = queue.settings.get("users", {})
    others = limits.get("default", {})
    names = [*queue.users, *(name for name in limits if name not in queue.users)]
    return ", ".join(
        f"{user} {format_milli(queue.users.get(user, {}).get('gpu', 0))}{_limit(limits.get(user, others))}"
        for user in names
    )


def _limit(amounts: Mapping[str, Any]) -> str:
    return f"/{amounts['nvidia.com/gpu']}" if "nvidia.com/gpu" in amounts else ""


def _budget(queue: Queue) -> str:
    budget = queue.budget
    if budget is None:
        return ""
    reached = f", {budget.percent_reached} % used" if budget.percent_reached else ""
    return f"{budget.gpu_hours:g} GPU-hours a {budget.period}{reached}"


type Words = Mapping[str, dict[str, Any]]


class QueueChange(NamedTuple):
    """Change of one queue or pool: "create", "change" or "remove"; {field: (now, then)}, None: not set."""

    what: str
    kind: str
    name: str
    fields: dict[str, tuple[Any, Any]]


def changes(file: QueueFile, pools: Words, queues: Words, *, prune: bool) -> tuple[list[QueueChange], int]:
    """(changes in the order of names, pools first; how many that the file names stay as they are)."""
    wanted_pools = {entry.pool: pool_words(entry.settings) for entry in file.pools}
    wanted_queues = {
        entry.path: {**queue_words(entry.settings), **role_words(file.roles.get(entry.path, ()))}
        for entry in file.queues
    }
    above = {path for entry in file.queues for path in _above(entry.path)}.difference(wanted_queues)
    # A queue above one that is named is made where it is missing, and stays; the default pool is always there.
    new = [path for path in wanted_queues if path not in queues]
    made: Words = {
        path: {} for path in above if path not in queues and any(each.startswith(f"{path}/") for each in new)
    }
    found = _compare("pool", wanted_pools, pools, prune, stay={DEFAULT_POOL})
    found += _compare("queue", {**wanted_queues, **made}, queues, prune, stay=above)
    changed = sum(change.what != "remove" and change.name not in made for change in found)
    return found, len(wanted_pools) + len(wanted_queues) - changed


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _compare(kind: str, wanted: Words, there: Words, prune: bool, stay: Collection[str]) -> list[QueueChange]:
    found: list[QueueChange] = []
    for name in sorted({*wanted, *there}, key=lambda name: name.split("/")):
        if name not in wanted:
            if prune and name not in stay:
                found.append(QueueChange("remove", kind, name, {}))
            continue
        now, then = _flat(there.get(name, {})), _flat(wanted[name])
        fields = {
            field: (now.get(field), then.get(field))
            for field in sorted({*now, *then})
            if now.get(field) != then.get(field)
        }
        if name not in there:
            found.append(QueueChange("create", kind, name, fields))
        elif fields:
            found.append(QueueChange("change", kind, name, fields))
    return found


def _flat(words: dict[str, Any], above: str = "") -> dict[str, Any]:
    """{"guaranteed.cpu": 256} of {"guaranteed": {"cpu": 256}}."""
    flat: dict[str, Any] = {}
    for name, value in words.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{path}.")
        else:
            flat[path] = value
    return flat


_SIGNS = {"create": "+", "change": "~", "remove": "-"}


def change_lines(found: list[QueueChange], unchanged: int) -> str:
    """Return the text of the changes: one line per queue or pool and one per changed field."""
    text = ""
    for change in found:
        text += f"{_SIGNS[change.what]} {change.kind} {change.name}\n"
        for field, (now, then) in change.fields.items():
            was = "" if change.what == "create" else f"{_word(now)} -> "
            text += f"    {field}: {was}{_word(then)}\n"
    if unchanged:
        text += f"= {unchanged} as {'it is' if unchanged == 1 else 'they are'}\n"
    return text


def _word(value: Any) -> str:
    return "not set" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def concerned_lines(tried: QueueFilePreview, *, reclaim: bool) -> list[str]:
    """Return whom a change of queues would concern at once, a line for each kind, and that nothing was changed. `tried`: with `reclaim`,
    whatever is asked for.
    """
    yields = "would be asked to yield" if reclaim else "would go on; with --reclaim, it would be asked to yield"
    if len(tried.yields) > 1:
        yields = yields.replace("it would", "they would")
    kinds = (
        (tried.yields, yields),
        (tried.withdrawn, "would be without the offer that it has"),
        (tried.offered, "would be offered next"),
    )
    lines = [f"{_jobs(jobs)} {words}" for jobs, words in kinds if jobs]
    if tried.hidden:
        lines.append(f"and {tried.hidden} that you may not see")
    return [*lines, "nothing was changed; the queue service would not refuse it now"]


def _jobs(jobs: list[ConcernedJob]) -> str:
    named = "; ".join(
        f"{job.id} of {job.user} in {job.queue}, {format_milli(job.gpu_milli)} GPUs" for job in jobs[:NAMED_MAX]
    )
    more = f" and {len(jobs) - NAMED_MAX} more" if len(jobs) > NAMED_MAX else ""
    return f"{len(jobs)} job{'' if len(jobs) == 1 else 's'} ({named}{more})"
