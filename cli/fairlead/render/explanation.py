"""Lines of one `why` and of one dry run: the sentence, its evidence in numbers, what would change it, the next step. Pure."""

from typing import Any

import msgspec

from fairlead.render.start_forecast import forecast_lines
from fairlead.render.terminal import hidden_jobs
from fairlead_schemas.http.api import Attempt, DryRun, QuotaAfter, StartEstimate
from fairlead_schemas.queuefile.amounts import EVIDENCE_UNITS, counted, gpu_hours_word, number, resource_word
from fairlead_schemas.units.quantities import format_duration
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.resource_requests import size

#: {end of an evidence's name: the resource that it counts}
_COUNTED = {f"_{unit}": resource for resource, unit in EVIDENCE_UNITS.items()}
_GPU_HOURS = "_gpu_milli_s"


def facts(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, text) of each line."""
    reason = answer.get("reason") or {}
    detail = dict(reason.get("detail") or {})
    following = detail.pop("next", "")
    return [
        ("job", f"{answer.get('id') or answer.get('job', '')}  {answer.get('state', '')}".rstrip()),
        ("why", reason.get("message", "")),
        ("evidence", "; ".join(evidence(detail))),
        *lines("changes", [change.get("message", "") for change in answer.get("changes") or []]),
        *forecast_lines(answer.get("forecast")),
        *lines("output", answer.get("output") or []),
        *lines("before", [attempt(msgspec.convert(each, Attempt)) for each in answer.get("attempts") or []]),
        ("note", answer.get("note") or ""),
        ("next", str(following)),
        ("as of", f"sequence {answer.get('sequence', '')}"),
    ]


def attempt(ended: Attempt) -> str:
    """Describe one in a line: "attempt 1 on n1, 2026-01-31T10:03:02.000Z to 2026-01-31T10:04:11.000Z: gpu_fault (xid79)"."""
    code = ended.gpu_fault or ("" if ended.exit_code is None else f"exit {ended.exit_code}")
    code = code or ("" if ended.signal is None else f"signal {ended.signal}")
    when = f"{ended.started_at} to {ended.ended_at}" if ended.started_at else f"never began, {ended.ended_at or ''}"
    message = f": {ended.message}" if ended.message else ""
    return f"attempt {ended.attempt} on {', '.join(ended.nodes)}, {when}: {ended.reason}{f' ({code})' if code else ''}{message}"


def lines(label: str, texts: list[str]) -> list[tuple[str, str]]:
    """Several lines of which the first has the label."""
    return [("" if at else label, text) for at, text in enumerate(texts)]


def evidence(detail: dict[str, int | str]) -> list[str]:
    """Numbers with what they count: {"resource": "gpu", "held_gpu_milli": 6000} is "held 6 GPUs"."""
    resource = str(detail.get("resource", ""))
    amounts = {name: text for name, value in detail.items() if (text := _amount(name, value, resource))}
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
    words = _words(name.removeprefix("gpu_milli_"))
    return f"{words} {counted('gpu', value)}" if name.startswith("gpu_milli_") else ""


def _words(name: str) -> str:
    """A name of the log ("nodes.free_gpus") stays as it is."""
    return name if "." in name else name.replace("_", " ")


_command = msgspec.json.Decoder(SubmitJob)


def dry_run_facts(found: DryRun) -> list[tuple[str, str]]:
    """(label, text) of each line."""
    command = _command.decode(found.command)
    pool = f" of pool {found.pool}" if found.pool not in ("", "default") else ""
    array = f", {command.array[1] - command.array[0] + 1} times" if command.array else ""
    return [
        ("job", f"{command.name}: {size(command.request)}{array}, in queue {command.queue}{pool}"),
        ("result", found.message),
        *lines("quota", [_quota(one) for one in found.quota]),
        ("borrows", _borrows(found, command.queue)),
        ("ahead", _ahead(found)),
        *lines("changes", [change.message for change in found.changes]),
        *lines("may yield", [one.message for one in found.displaces] + hidden_jobs(found.displaces_hidden)),
        ("estimate", _estimate(found.estimate)),
        *forecast_lines(found.forecast),
        ("as of", f"sequence {found.sequence}" if found.sequence else ""),
    ]


def _quota(one: QuotaAfter) -> str:
    """ "research/vision: 6 -> 10 GPUs (4 guaranteed, 8 at most)"."""
    limits = [f"{number(one.resource, one.guaranteed)} guaranteed"] if one.guaranteed else []
    limits += [f"{number(one.resource, one.maximum)} at most"] if one.maximum is not None else []
    used, after = number(one.resource, one.used), counted(one.resource, one.after)
    whose = f"{one.user} in {one.queue}" if one.user else one.queue
    return f"{whose}: {used} -> {after} ({', '.join(limits)})"


def _borrows(found: DryRun, queue: str) -> str:
    amounts = [counted(resource, amount) for resource, amount in sorted(found.borrows.items())]
    return f"{' and '.join(amounts)} beyond what is guaranteed to {queue}" if amounts else ""


def _ahead(found: DryRun) -> str:
    if found.checked != "queue" or not found.valid:
        return ""
    if not found.ahead:
        return "none"
    more = ", …" if found.ahead > len(found.first_ahead) else ""
    return f"{found.ahead} job{'' if found.ahead == 1 else 's'}: {', '.join(found.first_ahead)}{more}"


def _estimate(estimate: StartEstimate | None) -> str:
    if estimate is None:
        return ""
    if estimate.start_at is None:
        return f"no start can be estimated: {estimate.basis}"
    wait_s = estimate.wait_seconds or 0
    when = f"at {estimate.start_at}, in {format_duration(wait_s * SECOND_NS)}" if wait_s else "at once"
    return f"starts {when}, going by: {estimate.basis}"
