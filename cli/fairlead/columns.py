"""Columns for each kind of object, in Fairlead's order and in Slurm's. Pure."""

from collections import Counter
from datetime import UTC, datetime

from fairlead import idle_words
from fairlead.render import Column
from fairlead_schemas.http.api import Job, Node
from fairlead_schemas.jobfile.job_spec import decode_job
from fairlead_schemas.jobfile.request import request_of
from fairlead_schemas.units.quantities import SECOND_NS, format_duration, format_memory, format_milli
from fairlead_schemas.units.validation import ErrorCollector, InvalidJob
from fairlead_schemas.wire.resources import Request

#: Slurm's two-letter states by ours.
SLURM_STATES = {
    "scheduled": "PD", "queued": "PD", "held": "PD", "offered": "PD", "placed": "CF", "running": "R",
    "stopping": "CG", "succeeded": "CD", "failed": "F", "cancelled": "CA",
}  # fmt: skip
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
        return idle_words.standing(job.idle, idle_words.now())
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


def asked(job: Job) -> Request:
    """Return the request of the job file; an empty request if the file cannot be read."""
    try:
        return request_of(decode_job(bytes(job.spec)), ErrorCollector())
    except InvalidJob:
        return Request()


def gpu_count(job: Job) -> str:
    """GPUs held, or asked for while none are held: `2x8` for a gang."""
    if held := sum(len(uuids) for uuids in job.gpus.values()):
        return str(held)
    request = asked(job)
    kinds = [
        f"{kind.nodes}x{_each(kind)}" if kind.nodes > 1 else _each(kind) for kind in request.kinds if _each(kind) != "0"
    ]
    return "+".join(kinds) or "0"


def _each(kind: Request) -> str:
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
    end = parse_time(job.ended_at) if job.ended_at else datetime.now(UTC)
    seconds = max(0.0, (end - parse_time(job.started_at)).total_seconds())
    return format_duration(int(seconds * SECOND_NS))


def parse_time(text: str) -> datetime:
    """An RFC 3339 time of the API."""
    return datetime.fromisoformat(text)


JOBS = (
    Column("ID", lambda j: j.id), Column("NAME", lambda j: j.name), Column("QUEUE", lambda j: j.queue),
    Column("USER", lambda j: j.user), Column("STATE", lambda j: j.state), Column("GPUS", gpu_count, right=True),
    Column("NODES", lambda j: ",".join(j.nodes)), Column("TIME", elapsed, right=True),
    Column("PRIORITY", lambda j: str(j.priority), wide=True, right=True),
    Column("ATTEMPT", lambda j: str(j.attempt), wide=True, right=True), Column("KIND", lambda j: j.kind, wide=True),
    Column("PROJECT", lambda j: j.project, wide=True), Column("EXIT", ended_how, wide=True),
    Column("SUBMITTED", lambda j: j.submitted_at, wide=True), Column("WHY", why_now),
)  # fmt: skip

NODES = (
    Column("NODE", lambda n: n.id), Column("STATE", lambda n: n.state), Column("GPU", lambda n: n.gpu_model),
    Column("GPUS", lambda n: str(n.gpus), right=True), Column("FREE", lambda n: str(n.gpus_free), right=True),
    Column("CPU FREE", lambda n: f"{format_milli(n.cpu_milli_free)}/{format_milli(n.cpu_milli)}", right=True),
    Column("MEMORY FREE", lambda n: f"{format_memory(n.memory_mib_free)}/{format_memory(n.memory_mib)}", right=True),
    Column("RUNTIME", lambda n: f"{n.runtime}{' simulated' if n.simulated else ''}"),
    Column("ADDRESS", lambda n: n.address, wide=True), Column("HOST", lambda n: n.hostname, wide=True),
    Column("RACK", lambda n: n.labels.get("fairlead/rack", ""), wide=True), Column("INSIDE", lambda n: n.inside, wide=True),
    Column("MIG", lambda n: n.mig, wide=True),
    Column("TAINTS", lambda n: ",".join(n.taints), wide=True), Column("JOBS", lambda n: ",".join(n.jobs), wide=True),
    Column("FAULTED", lambda n: ",".join(f"{gpu}={code}" for gpu, code in n.faulted.items()), wide=True),
    Column("NOTES", lambda n: node_notes(n)),
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
    Column("ROLLOUT", lambda r: r.name), Column("STATE", lambda r: r.state),
    Column("NODES", lambda r: str(sum(map(len, r.nodes.values()))), right=True),
    *(
        Column(step.upper(), lambda r, step=step: str(len(r.nodes.get(step, []))), right=True)
        for step in ("waiting", "draining", "returned", "skipped", "left")
    ),
    Column("GPUS AWAY", lambda r: f"{r.gpus_away}/{r.budget_gpus}", right=True), Column("BY", lambda r: r.by),
    Column("REASON", lambda r: r.reason),
)  # fmt: skip

WINDOWS = (
    Column("WINDOW", lambda w: w.name), Column("STATE", lambda w: w.state), Column("STARTS", lambda w: w.starts_at),
    Column("ENDS", lambda w: w.ends_at), Column("NODES", lambda w: ",".join(w.nodes)), Column("BY", lambda w: w.by),
    Column("REASON", lambda w: w.reason),
)  # fmt: skip


def _slurm_where(job: Job) -> str:
    if job.nodes:
        return ",".join(job.nodes)
    return f"({job.reason.code})" if job.reason else "(None)"


SQUEUE = (
    Column("JOBID", lambda j: j.id, right=True), Column("PARTITION", lambda j: j.queue), Column("NAME", lambda j: j.name),
    Column("USER", lambda j: j.user), Column("ST", lambda j: SLURM_STATES[j.state]), Column("TIME", elapsed, right=True),
    Column("NODES", lambda j: str(asked(j).units), right=True), Column("NODELIST(REASON)", _slurm_where),
)  # fmt: skip

SINFO = (
    Column("PARTITION", lambda r: r[0]), Column("AVAIL", lambda r: "up"), Column("TIMELIMIT", lambda r: "infinite", right=True),
    Column("NODES", lambda r: str(len(r[2])), right=True), Column("STATE", lambda r: r[1]), Column("NODELIST", lambda r: ",".join(r[2])),
)  # fmt: skip

SACCT = (
    Column("JobID", lambda j: j.id), Column("JobName", lambda j: j.name), Column("Partition", lambda j: j.queue),
    Column("Account", lambda j: j.project), Column("AllocTRES", lambda j: f"gres/gpu={format_milli(asked(j).gpu_milli_total)}"),
    Column("State", lambda j: SLURM_STATE_WORDS[SLURM_STATES[j.state]]),
    Column("ExitCode", lambda j: f"{j.exit_code or 0}:{j.signal or 0}", right=True),
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
