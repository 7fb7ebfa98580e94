"""Preview of the changes that applying a queue file would make to the configuration. Pure.

Both sides are settings in the notation of a queue file with their defaults left out, so that two spellings of one value
(1 and "1000m") are no difference. A refusal by the queue service cannot be predicted here.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from fairlead_schemas.queuefile.parse import QueueFile
from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.queuefile.settings_format import pool_words, queue_words

type Words = Mapping[str, dict[str, Any]]


class Change(NamedTuple):
    """Change of one queue or pool: "create", "change" or "remove"; {field: (now, then)}, None: not set."""

    what: str
    kind: str
    name: str
    fields: dict[str, tuple[Any, Any]]


def changes(file: QueueFile, pools: Words, queues: Words, *, prune: bool) -> tuple[list[Change], int]:
    """(changes in the order of names, pools first; how many that the file names stay as they are)."""
    wanted_pools = {entry.pool: pool_words(entry.settings) for entry in file.pools}
    wanted_queues = {entry.path: queue_words(entry.settings) for entry in file.queues}
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


def _compare(kind: str, wanted: Words, there: Words, prune: bool, stay: Collection[str]) -> list[Change]:
    found: list[Change] = []
    for name in sorted({*wanted, *there}, key=lambda name: name.split("/")):
        if name not in wanted:
            if prune and name not in stay:
                found.append(Change("remove", kind, name, {}))
            continue
        now, then = _flat(there.get(name, {})), _flat(wanted[name])
        fields = {
            field: (now.get(field), then.get(field))
            for field in sorted({*now, *then})
            if now.get(field) != then.get(field)
        }
        if name not in there:
            found.append(Change("create", kind, name, fields))
        elif fields:
            found.append(Change("change", kind, name, fields))
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


def lines(found: list[Change], unchanged: int) -> str:
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
