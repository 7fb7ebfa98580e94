"""Columns for each kind of object, in Fairlead's order and in Slurm's; and texts on idle jobs: since when they are idle,
the consequence and its time, the evidence. Pure.

Table columns read the clock.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.render import clock
from fairlead.render.terminal import TableColumn
from fairlead_schemas.http.api import IdleRun, IdleSaving, IdleScope, IdleStatus, Job, Node
from fairlead_schemas.units.quantities import format_duration, format_memory, format_milli
from fairlead_schemas.units.timestamps import SECOND_NS, parse_rfc3339
from fairlead_schemas.units.validation import ErrorCollector, InvalidJob
from fairlead_schemas.wire.lifecycle import END_STATES

if TYPE_CHECKING:
    from fairlead_schemas.wire.resources import Request


def standing(idle: IdleStatus, now_ns: int) -> str:
    """ "idle 14m, will be reclaimed in 6m"."""
    since = _span((now_ns - parse_rfc3339(idle.since)) / SECOND_NS)
    text = f"runs for {since}" if idle.rule == "lifetime" else f"idle {since}"
    then = countdown(idle, now_ns)
    return f"{text}, {then}" if then else text


def countdown(idle: IdleStatus, now_ns: int) -> str:
    """Return the consequence of an idle job and its time; "" without one."""
    if idle.mode == "dry_run":
        return "on trial: nothing follows"
    if idle.reclaim_at is None:
        return ""
    on_demand = idle.mode == "on_demand"
    if idle.asked:
        return "reclaimed as soon as a job waits for it" if on_demand else "being reclaimed"
    left_s = (parse_rfc3339(idle.reclaim_at) - now_ns) / SECOND_NS
    when = f"in {_span(left_s)}" if left_s >= 1 else "now"
    return f"{'may' if on_demand else 'will'} be reclaimed {when}"


def _span(seconds: float) -> str:
    return format_duration(int(max(0, seconds)) * SECOND_NS) if seconds >= 1 else "0s"


def _then(run: IdleRun) -> str:
    return countdown(run.idle, clock.now_ns()) or "-"


def _since(run: IdleRun) -> str:
    return _span((clock.now_ns() - parse_rfc3339(run.idle.since)) / SECOND_NS)


#: Of `fairlead idle`.
RUNS = (
    TableColumn("JOB", lambda r: r.job), TableColumn("NAME", lambda r: r.name), TableColumn("USER", lambda r: r.user),
    TableColumn("QUEUE", lambda r: r.queue, wide=True), TableColumn("KIND", lambda r: r.kind, wide=True),
    TableColumn("GPUS", lambda r: format_milli(r.gpu_milli), right=True), TableColumn("IDLE", _since, right=True),
    TableColumn("THEN", _then), TableColumn("ACTION", lambda r: r.idle.action, wide=True),
    TableColumn("POLICY", lambda r: f"{r.idle.rule} of {r.idle.scope}"), TableColumn("EVIDENCE", lambda r: r.idle.words),
)  # fmt: skip


def _saving(saving: IdleSaving) -> str:
    return f"{saving.gpu_hours:.1f}" if saving.gpu_hours >= 1 else f"{saving.gpu_hours:.3f}"


#: Of `fairlead idle report`.
SAVINGS = (
    TableColumn("SCOPE", lambda s: s.scope),
    TableColumn("RULE", lambda s: s.rule),
    TableColumn("ACTION", lambda s: s.action),
    TableColumn("RUNS", lambda s: str(s.runs), right=True),
    TableColumn("GPU-HOURS", _saving, right=True),
    TableColumn("CAME ALIVE", lambda s: str(s.came_alive), right=True),
)


class PolicyRow:
    """Policy of one scope, in the notation of a file."""

    def __init__(self, scope: IdleScope, policy: dict[str, Any]) -> None:
        self.scope, self.by, self.policy = scope.scope, scope.by, policy

    def when(self) -> str:
        """ "gpu below 5%, network below 10KiB/s for 20m"."""
        after, below = self.policy["after"], self.policy.get("below") or {}
        match self.policy["rule"]:
            case "interaction":
                return f"no user activity for {after}"
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
    TableColumn("SCOPE", lambda r: r.scope), TableColumn("RULE", lambda r: r.policy["rule"]), TableColumn("IDLE WHEN", PolicyRow.when),
    TableColumn("NOTICE", lambda r: r.policy["notice"]), TableColumn("ACTION", lambda r: r.policy["action"]),
    TableColumn("MODE", lambda r: r.policy["mode"]), TableColumn("EXTENSIONS", PolicyRow.extensions),
    TableColumn("KINDS", lambda r: ",".join(r.policy.get("kinds") or ["all"])), TableColumn("BY", lambda r: r.by, wide=True),
)  # fmt: skip


#: Slurm's two-letter states by ours.
SLURM_STATES = {
    "scheduled": "PD",
    "queued": "PD",
    "held": "PD",
    "offered": "PD",
    "placed": "CF",
    "running": "R",
    "stopping": "CG",
    "succeeded": "CD",
    "failed": "F",
    "cancelled": "CA",
}
SLURM_STATE_WORDS = {
    "CD": "COMPLETED",
    "F": "FAILED",
    "CA": "CANCELLED",
    "R": "RUNNING",
    "PD": "PENDING",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
}


def why_now(job: Job) -> str:
    """Return one sentence on the job's present state, for the last column."""
    if job.state in ("queued", "offered", "held", "scheduled", "stopping") and job.reason:
        return job.reason.message or job.reason.code
    if job.state == "running" and job.idle is not None:
        return standing(job.idle, clock.now_ns())
    if job.state == "failed":
        return job.message or ended_how(job) or (job.reason.message if job.reason else "")
    if job.array:
        return ", ".join(f"{count} {state}" for state, count in job.array.items() if count)
    return ""


def ended_how(job: Job) -> str:
    """`exit 3`, `signal 9` or nothing."""
    if job.signal:
        return f"signal {job.signal}"
    return f"exit {job.exit_code}" if job.exit_code is not None else ""


def job_request(job: Job) -> "Request":
    """Return the request of the job file; an empty request if the file cannot be read."""
    from fairlead_schemas.jobfile.job_spec import decode_job
    from fairlead_schemas.jobfile.request import request_of
    from fairlead_schemas.wire.resources import Request

    try:
        return request_of(decode_job(bytes(job.spec)), ErrorCollector())
    except InvalidJob:
        return Request()


def gpu_count(job: Job) -> str:
    """GPUs held, or asked for while none are held: `2x8` for a gang."""
    if held := sum(len(uuids) for uuids in job.gpus.values()):
        return str(held)
    request = job_request(job)
    kinds = [
        f"{kind.nodes}x{_each(kind)}" if kind.nodes > 1 else _each(kind) for kind in request.kinds if _each(kind) != "0"
    ]
    return "+".join(kinds) or "0"


def _each(kind: "Request") -> str:
    """GPUs of a node or task: "8", "0.500", "2x3g.20gb"."""
    if kind.profile or kind.replicas:
        return f"{kind.gpu_parts}x{kind.profile or 'shared'}"
    return format_milli(kind.gpu_milli)


def is_spent_array(job: Job) -> bool:
    """An array whose elements have all come into being: they stand for it in lists of single jobs."""
    return job.array is not None and not job.array.get("waiting")


def elapsed(job: Job) -> str:
    """Return the job's running time (until now, or until its end), "-" before its start."""
    if not job.started_at:
        return "-"
    return format_duration(_elapsed_ns(job))


def elapsed_seconds(job: Job) -> int:
    """Return the whole seconds of `elapsed`, 0 before the start."""
    return _elapsed_ns(job) // SECOND_NS if job.started_at else 0


def _elapsed_ns(job: Job) -> int:
    end_ns = parse_rfc3339(job.ended_at) if job.ended_at else clock.now_ns()
    return max(0, end_ns - parse_rfc3339(job.started_at or ""))


def job_state(job: Job) -> str:
    """Return the state; of an array with live elements their numbers: "2 running, 5 waiting"."""
    if job.array is None or job.state in END_STATES or len(job.array) == 0:
        return job.state
    return ", ".join(f"{count} {state}" for state, count in job.array.items() if count) or job.state


JOBS = (
    TableColumn("ID", lambda j: j.id), TableColumn("NAME", lambda j: j.name), TableColumn("QUEUE", lambda j: j.queue),
    TableColumn("USER", lambda j: j.user), TableColumn("STATE", job_state), TableColumn("GPUS", gpu_count, right=True),
    TableColumn("NODES", lambda j: ",".join(j.nodes)), TableColumn("TIME", elapsed, right=True),
    TableColumn("PRIORITY", lambda j: str(j.priority), wide=True, right=True),
    TableColumn("ATTEMPT", lambda j: str(j.attempt), wide=True, right=True), TableColumn("KIND", lambda j: j.kind, wide=True),
    TableColumn("PROJECT", lambda j: j.project, wide=True), TableColumn("EXIT", ended_how, wide=True),
    TableColumn("SUBMITTED", lambda j: j.submitted_at, wide=True), TableColumn("WHY", why_now),
)  # fmt: skip


def app_of(job: Job) -> str:
    """Return the application that a job's file names, "" for none."""
    spec = msgspec.json.decode(job.spec)
    app = spec.get("app", "") if isinstance(spec, dict) else ""
    return str(app.get("profile", "http") if isinstance(app, dict) else app)


def session_state(job: Job) -> str:
    """Return the state of a session; of one that runs, whether its application serves."""
    if job.state != "running" or not app_of(job):
        return job_state(job)
    return "ready" if job.ready_at is not None else "starting"


SESSIONS = (
    *JOBS[:2],
    TableColumn("APP", app_of),
    TableColumn("STATE", session_state),
    *JOBS[5:8],
    JOBS[-1],
)

NODES = (
    TableColumn("NODE", lambda n: n.id), TableColumn("STATE", lambda n: n.state), TableColumn("GPU", lambda n: n.gpu_model),
    TableColumn("GPUS", lambda n: str(n.gpus), right=True), TableColumn("FREE", lambda n: str(n.gpus_free), right=True),
    TableColumn("CPU FREE", lambda n: f"{format_milli(n.cpu_milli_free)}/{format_milli(n.cpu_milli)}", right=True),
    TableColumn("MEMORY FREE", lambda n: f"{format_memory(n.memory_mib_free)}/{format_memory(n.memory_mib)}", right=True),
    TableColumn("RUNTIME", lambda n: f"{n.runtime}{' simulated' if n.simulated else ''}"),
    TableColumn("ADDRESS", lambda n: n.address, wide=True), TableColumn("HOST", lambda n: n.hostname, wide=True),
    TableColumn("RACK", lambda n: n.labels.get("fairlead/rack", ""), wide=True), TableColumn("INSIDE", lambda n: n.inside, wide=True),
    TableColumn("MIG", lambda n: n.mig, wide=True),
    TableColumn("TAINTS", lambda n: ",".join(n.taints), wide=True), TableColumn("JOBS", lambda n: ",".join(n.jobs), wide=True),
    TableColumn("FAULTED", lambda n: ",".join(f"{gpu}={code}" for gpu, code in n.faulted.items()), wide=True),
    TableColumn("NOTES", lambda n: node_notes(n)),
)  # fmt: skip


def node_notes(node: Node) -> str:
    """Everything that keeps work from the node or its GPUs, in one line: silence, faults, taints, then the reason of its state."""
    faults = Counter(node.faulted.values())
    notes = [f"silent for {node.silent_seconds} s"] if node.silent_seconds else []
    notes += [f"{count} GPU{'' if count == 1 else 's'} faulted ({code})" for code, count in sorted(faults.items())]
    notes += [each.code for each in node.health if not each.gpu]
    notes += [f"taint {taint}" for taint in node.taints]
    return "; ".join([*notes, *([node.reason] if node.reason else [])])


ROLLOUTS = (
    TableColumn("ROLLOUT", lambda r: r.name), TableColumn("STATE", lambda r: r.state),
    TableColumn("NODES", lambda r: str(sum(map(len, r.nodes.values()))), right=True),
    *(
        TableColumn(step.upper(), lambda r, step=step: str(len(r.nodes.get(step, []))), right=True)
        for step in ("waiting", "draining", "returned", "skipped", "left")
    ),
    TableColumn("GPUS AWAY", lambda r: f"{r.gpus_away}/{r.budget_gpus}", right=True), TableColumn("BY", lambda r: r.by),
    TableColumn("REASON", lambda r: r.reason),
)  # fmt: skip

WINDOWS = (
    TableColumn("WINDOW", lambda w: w.name),
    TableColumn("STATE", lambda w: w.state),
    TableColumn("STARTS", lambda w: w.starts_at),
    TableColumn("ENDS", lambda w: w.ends_at),
    TableColumn("NODES", lambda w: ",".join(w.nodes)),
    TableColumn("BY", lambda w: w.by),
    TableColumn("REASON", lambda w: w.reason),
)


def _slurm_where(job: Job) -> str:
    if job.nodes:
        return ",".join(job.nodes)
    return f"({job.reason.code})" if job.reason else "(None)"


SQUEUE = (
    TableColumn("JOBID", lambda j: j.id, right=True), TableColumn("PARTITION", lambda j: j.queue), TableColumn("NAME", lambda j: j.name),
    TableColumn("USER", lambda j: j.user), TableColumn("ST", lambda j: SLURM_STATES[j.state]), TableColumn("TIME", elapsed, right=True),
    TableColumn("NODES", lambda j: str(job_request(j).units), right=True), TableColumn("NODELIST(REASON)", _slurm_where),
)  # fmt: skip

SINFO = (
    TableColumn("PARTITION", lambda r: r.partition),
    TableColumn("AVAIL", lambda r: r.avail),
    TableColumn("TIMELIMIT", lambda r: "infinite", right=True),
    TableColumn("NODES", lambda r: str(len(r.nodes)), right=True),
    TableColumn("STATE", lambda r: r.state),
    TableColumn("NODELIST", lambda r: ",".join(node.id for node in r.nodes)),
)

SACCT = (
    TableColumn("JobID", lambda j: j.id), TableColumn("JobName", lambda j: j.name), TableColumn("Partition", lambda j: j.queue),
    TableColumn("Account", lambda j: j.project), TableColumn("AllocTRES", lambda j: f"gres/gpu={format_milli(job_request(j).gpu_milli_total)}"),
    TableColumn("State", lambda j: SLURM_STATE_WORDS[SLURM_STATES[j.state]]),
    TableColumn("ExitCode", lambda j: f"{j.exit_code or 0}:{j.signal or 0}", right=True),
)  # fmt: skip


def slurm_node_state(node: Node) -> str:
    """sinfo's word for a node."""
    if node.state == "lost":
        return "down"
    if node.state not in ("ready", "suspect") or node.gpu_states.get("closed"):
        return "drain"
    if not node.jobs:
        return "idle"
    return "alloc" if node.gpus and not node.gpus_free else "mix"
