"""A job file in the making from a file of another system: words with the paths that they come from, remarks, and fields that
cannot be kept; and words that parts of a Kubernetes object share: priority classes, topology, names.

Pure. `take` removes what is understood; `JobDraft.leave` names the remainder, so that no field can be dropped silently.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fairlead_schemas.units.hardware import TOPOLOGY_LEVELS


class Around(NamedTuple):
    """Other documents of the file: {ConfigMap: its data}, {priority class: its value}."""

    config: Mapping[str, Mapping[str, Any]]
    priorities: Mapping[str, int]


class JobDraft:
    """A job file in the making: words with the paths that they come from, remarks, and fields that cannot be kept."""

    def __init__(self, around: Around | None = None) -> None:
        self.around = around or Around({}, {})
        self.job: dict[str, Any] = {}
        self.notes: list[str] = []
        self.unkept: dict[str, str] = {}
        #: {field of the job: path in the document}
        self.renamed: dict[str, str] = {}
        #: {variable: a shell's word for its value}, of variables that are known on the node only.
        self.late: dict[str, str] = {}
        #: Host name of a gang's first pod; "" where pods have none.
        self.first_pod = ""

    def put(self, field: str, value: Any, path: str) -> None:
        """Set a field, unless there is no value."""
        if value not in (None, {}, [], ""):
            self.job[field] = value
            self.renamed[field] = path

    def note(self, text: str) -> None:
        """Add a remark, once."""
        if text not in self.notes:
            self.notes.append(text)

    def leave(self, rest: Any, prefix: str, noted: tuple[str, ...]) -> None:
        """Name what is left of a part: in notes what begins so, else as fields that cannot be kept."""
        for path in leaves(rest):
            if path.startswith(noted):
                self.note(f"{prefix}{path} is not followed")
            else:
                self.unkept.setdefault(f"{prefix}{path}", "this field is not followed here")


def take(document: Any, path: str) -> Any:
    """Remove and return the value at a dotted path (None: not there). `a|b.c`: the last key is `b.c`."""
    head, bar, last = path.partition("|")
    *parents, final = head.split(".") if not bar else [*head.split("."), last]
    for key in parents:
        document = document.get(key) if isinstance(document, dict) else None
    return document.pop(final, None) if isinstance(document, dict) else None


def leaves(value: Any, path: str = "") -> list[str]:
    """Return the paths of everything below a value; of an empty map none."""
    if isinstance(value, dict):
        return [leaf for key, child in value.items() for leaf in leaves(child, f"{path}.{key}" if path else str(key))]
    return [path]


def put_priority(name: str, path: str, draft: JobDraft) -> None:
    """Set the priority of a class that is in the file, or named as such classes usually are."""
    usual = {"low": 25, "normal": 50, "medium": 50, "default": 50, "high": 75, "critical": 90}
    value = draft.around.priorities.get(name)
    found = next((usual[part] for part in re.split(r"[-_]", name.lower()) if part in usual), None)
    if value is None and found is None:
        draft.unkept[path] = (
            f'priority class "{name}" is not known here: put it into the file, or use --priority (0 to 1000)'
        )
        return
    ours = found if value is None else min(max(value, 0), 1000)
    draft.put("priority", ours, path)
    if value != ours:
        draft.note(f"priority class {name} is taken as priority {ours}; --priority sets another")


def put_topology(word: str, key: str, path: str, draft: JobDraft) -> None:
    """Set a level of topology from a label key such as cloud.provider.com/topology-rack."""
    last = re.split(r"[/.-]", key)[-1]
    level = {"hostname": "node", "host": "node", **{level: level for level in TOPOLOGY_LEVELS}}.get(last)
    if level is None:
        draft.unkept[path] = f"topology {key} is not known here: topology has {', '.join(TOPOLOGY_LEVELS)}"
    else:
        draft.put("topology", {**draft.job.get("topology", {}), word: level}, path)


def token(text: str) -> str:
    """Return a name in the letters that our names have."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]


def names(documents: Iterable[Any], kind: str) -> dict[str, dict[str, Any]]:
    """Return {name: document} of the documents of a kind."""
    found = [each for each in documents if each.get("kind") == kind and isinstance(each.get("metadata"), dict)]
    return {str(each["metadata"].get("name")): each for each in found}
