"""Lines of one dry run: what would become of the job, in the words of `why`. Pure."""

import msgspec

from fairlead.why_words import lines
from fairlead_schemas.http.api import DryRun, QuotaAfter, StartEstimate
from fairlead_schemas.queuefile.amounts import counted, number
from fairlead_schemas.units.quantities import SECOND_NS, format_duration
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.resource_requests import size

_command = msgspec.json.Decoder(SubmitJob)
#: Of those ahead, so many are named.
NAMED_MAX = 10


def facts(found: DryRun) -> list[tuple[str, str]]:
    """(label, text) of each line."""
    command = _command.decode(found.command)
    pool = f" of pool {found.pool}" if found.pool not in ("", "default") else ""
    array = f", {command.array[1] - command.array[0] + 1} times" if command.array else ""
    return [
        ("job", f"{command.name}: {size(command.request)}{array}, in queue {command.queue}{pool}"),
        ("result", found.message), *lines("quota", [_quota(one) for one in found.quota]),
        ("borrows", _borrows(found, command.queue)), ("ahead", _ahead(found)),
        *lines("changes", [change.message for change in found.changes]),
        *lines("may yield", [one.message for one in found.displaces]), ("estimate", _estimate(found.estimate)),
        ("as of", f"sequence {found.sequence}" if found.sequence else ""),
    ]  # fmt: skip


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
        return "nobody"
    named = ", ".join(found.first_ahead[:NAMED_MAX])
    more = ", …" if found.ahead > len(found.first_ahead[:NAMED_MAX]) else ""
    return f"{found.ahead} job{'' if found.ahead == 1 else 's'}: {named}{more}"


def _estimate(estimate: StartEstimate | None) -> str:
    if estimate is None:
        return ""
    if estimate.start_at is None:
        return f"no start can be told: {estimate.basis}"
    wait_s = estimate.wait_seconds or 0
    when = f"at {estimate.start_at}, in {format_duration(wait_s * SECOND_NS)}" if wait_s else "at once"
    return f"starts {when}, going by: {estimate.basis}"
