"""Texts on idle jobs: since when they are idle, the consequence and its time, the evidence. Table columns read the clock."""

from datetime import UTC, datetime
from typing import Any

from fairlead.render import Column
from fairlead_schemas.http.api import IdleRun, IdleSaving, IdleScope, IdleStatus
from fairlead_schemas.units.quantities import SECOND_NS, format_duration, format_milli


def now() -> datetime:
    """Return the present time, for comparison by `standing` and `countdown`."""
    return datetime.now(UTC)


def standing(idle: IdleStatus, now: datetime) -> str:
    """ "idle 14m, will be reclaimed in 6m"."""
    since = _span((now - datetime.fromisoformat(idle.since)).total_seconds())
    told = f"runs for {since}" if idle.rule == "lifetime" else f"idle {since}"
    then = countdown(idle, now)
    return f"{told}, {then}" if then else told


def countdown(idle: IdleStatus, now: datetime) -> str:
    """Return the consequence of an idle job and its time; "" without one."""
    if idle.mode == "dry_run":
        return "on trial: nothing follows"
    if idle.reclaim_at is None:
        return ""
    on_demand = idle.mode == "on_demand"
    if idle.asked:
        return "reclaimed as soon as somebody waits for it" if on_demand else "being reclaimed"
    left_s = (datetime.fromisoformat(idle.reclaim_at) - now).total_seconds()
    when = f"in {_span(left_s)}" if left_s >= 1 else "now"
    return f"{'may' if on_demand else 'will'} be reclaimed {when}"


def _span(seconds: float) -> str:
    return format_duration(int(max(0, seconds)) * SECOND_NS) if seconds >= 1 else "0s"


def _then(run: IdleRun) -> str:
    return countdown(run.idle, now()) or "-"


def _since(run: IdleRun) -> str:
    return _span((now() - datetime.fromisoformat(run.idle.since)).total_seconds())


#: Of `fairlead idle`.
RUNS = (
    Column("JOB", lambda r: r.job), Column("NAME", lambda r: r.name), Column("USER", lambda r: r.user),
    Column("QUEUE", lambda r: r.queue, wide=True), Column("KIND", lambda r: r.kind, wide=True),
    Column("GPUS", lambda r: format_milli(r.gpu_milli), right=True), Column("IDLE", _since, right=True),
    Column("THEN", _then), Column("ACTION", lambda r: r.idle.action, wide=True),
    Column("POLICY", lambda r: f"{r.idle.rule} of {r.idle.scope}"), Column("EVIDENCE", lambda r: r.idle.words),
)  # fmt: skip


def _saving(saving: IdleSaving) -> str:
    return f"{saving.gpu_hours:.1f}" if saving.gpu_hours >= 1 else f"{saving.gpu_hours:.3f}"


#: Of `fairlead idle report`.
SAVINGS = (
    Column("SCOPE", lambda s: s.scope), Column("RULE", lambda s: s.rule), Column("ACTION", lambda s: s.action),
    Column("RUNS", lambda s: str(s.runs), right=True), Column("GPU-HOURS", _saving, right=True),
    Column("CAME ALIVE", lambda s: str(s.came_alive), right=True),
)  # fmt: skip


class PolicyRow:
    """Policy of one scope, in the notation of a file."""

    def __init__(self, scope: IdleScope, policy: dict[str, Any]) -> None:
        self.scope, self.by, self.policy = scope.scope, scope.by, policy

    def when(self) -> str:
        """ "gpu below 5%, network below 10KiB/s for 20m"."""
        after, below = self.policy["after"], self.policy.get("below") or {}
        match self.policy["rule"]:
            case "interaction":
                return f"nobody there for {after}"
            case "lifetime":
                return f"has run for {after}"
            case _:
                return f"{', '.join(f'{signal} below {most}' for signal, most in below.items())} for {after}"

    def extensions(self) -> str:
        """ "2 x 2h"."""
        times = self.policy.get("extensions")
        return f"{times} x {self.policy.get('extend')}" if times else "none"


#: Of `fairlead idle policies`.
POLICIES = (
    Column("SCOPE", lambda r: r.scope), Column("RULE", lambda r: r.policy["rule"]), Column("IDLE WHEN", PolicyRow.when),
    Column("NOTICE", lambda r: r.policy["notice"]), Column("ACTION", lambda r: r.policy["action"]),
    Column("MODE", lambda r: r.policy["mode"]), Column("EXTENSIONS", PolicyRow.extensions),
    Column("KINDS", lambda r: ",".join(r.policy.get("kinds") or ["all"])), Column("BY", lambda r: r.by, wide=True),
)  # fmt: skip
