"""Lines of one `why`: the sentence, its evidence in numbers, what would change it, the next step. Pure."""

from typing import Any

import msgspec

from fairlead_schemas.http.api import Attempt
from fairlead_schemas.queuefile.amounts import counted, gpu_hours_word, resource_word

#: {end of an evidence's name: the resource that it counts}
_COUNTED = {"_gpu_milli": "gpu", "_cpu_milli": "cpu", "_memory_mib": "memory"}
_GPU_HOURS = "_gpu_milli_s"


def facts(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, text) of each line."""
    reason = answer.get("reason") or {}
    detail = dict(reason.get("detail") or {})
    following = detail.pop("next", "")
    return [
        ("job", f"{answer.get('id') or answer.get('job', '')}  {answer.get('state', '')}".rstrip()),
        ("why", reason.get("message", "")), ("evidence", "; ".join(evidence(detail))),
        *lines("changes", [change.get("message", "") for change in answer.get("changes") or []]),
        *lines("output", answer.get("output") or []),
        *lines("before", [attempt(msgspec.convert(each, Attempt)) for each in answer.get("attempts") or []]),
        ("note", answer.get("note") or ""), ("next", str(following)), ("as of", f"sequence {answer.get('sequence', '')}"),
    ]  # fmt: skip


def attempt(ended: Attempt) -> str:
    """Describe one in a line: "attempt 1 on n1, 2026-01-31T10:03:02.000Z to 2026-01-31T10:04:11.000Z: gpu_fault (xid79)"."""
    code = ended.gpu_fault or ("" if ended.exit_code is None else f"exit {ended.exit_code}")
    code = code or ("" if ended.signal is None else f"signal {ended.signal}")
    when = f"{ended.started_at} to {ended.ended_at}" if ended.started_at else f"never began, {ended.ended_at or ''}"
    said = f": {ended.message}" if ended.message else ""
    return f"attempt {ended.attempt} on {', '.join(ended.nodes)}, {when}: {ended.reason}{f' ({code})' if code else ''}{said}"


def lines(label: str, texts: list[str]) -> list[tuple[str, str]]:
    """Several lines of which the first has the label."""
    return [("" if at else label, text) for at, text in enumerate(texts)]


def evidence(detail: dict[str, int | str]) -> list[str]:
    """Numbers with what they count: {"resource": "gpu", "held_gpu_milli": 6000} is "held 6 GPUs"."""
    resource = str(detail.get("resource", ""))
    amounts = {name: told for name, value in detail.items() if (told := _amount(name, value, resource))}
    found: list[str] = []
    for name, value in detail.items():
        if name in amounts:
            found.append(amounts[name])
        elif name == "resource":
            found += [] if amounts else [f"resource {resource_word(resource)}"]
        else:
            found.append(f"{_words(name)} {value}")
    return found


def _amount(name: str, value: int | str, resource: str) -> str:
    if not isinstance(value, int):
        return ""
    if name.endswith(_GPU_HOURS):
        return f"{_words(name.removesuffix(_GPU_HOURS))} {gpu_hours_word(value)} GPU-hours"
    for end, counts in _COUNTED.items():
        if name.endswith(end):
            of = resource if resource.partition(":")[0] == counts else counts
            return f"{_words(name.removesuffix(end))} {counted(of, value)}"
    if name.startswith("gpu_milli_"):
        return f"{_words(name.removeprefix('gpu_milli_'))} {counted('gpu', value)}"
    return ""


def _words(name: str) -> str:
    """A name of the log ("nodes.free_gpus") stays as it is."""
    return name if "." in name else name.replace("_", " ")
