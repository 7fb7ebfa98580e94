"""Facts of a job as `fairlead show` prints them: (label, text) pairs; an empty text is left out."""

import msgspec

from fairlead.render import clock, columns, explanation
from fairlead_schemas.http.api import Job, Node
from fairlead_schemas.jobfile import agent_fields
from fairlead_schemas.jobfile.job_spec import OutputWords
from fairlead_schemas.units import quantities
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.units.validation import ErrorCollector


class _SpecOutput(msgspec.Struct):
    """The part of a job file about its output."""

    output: OutputWords = OutputWords()


def played_how(node: Node) -> str:
    """Return a note on the simulated part of a run on this node; "" where everything is real."""
    if node.runtime == "hollow":
        return " (hollow: nothing really ran)"
    return " (simulated)" if node.simulated else ""


def _on(job: Job, node: str, played: dict[str, str]) -> str:
    gpus = len(job.gpus.get(node, []))
    if not gpus and "hollow" not in played.get(node, ""):
        return node
    return f"{node} {gpus} GPU{'' if gpus == 1 else 's'}{played.get(node, '')}"


def job_facts(job: Job, played: dict[str, str], outputs: str = "") -> list[tuple[str, str]]:
    """Return all facts of a job. `played` has for each of its nodes the note of `played_how`; `outputs` are its kept ones, in words."""
    where = "; ".join(_on(job, node, played) for node in job.nodes)
    return [
        ("job", job.id),
        ("name", job.name),
        ("state", job.state),
        ("why", job.reason.message if job.reason else ""),
        ("kind", job.kind),
        ("queue", job.queue),
        ("user", job.user),
        ("project", job.project),
        ("priority", str(job.priority)),
        ("attempt", str(job.attempt)),
        *explanation.lines("before", [explanation.attempt(each) for each in job.attempts]),
        ("where", where),
        ("exit", columns.ended_how(job).removeprefix("exit ")),
        ("message", job.message),
        ("elements", ", ".join(f"{count} {state}" for state, count in (job.array or {}).items() if count)),
        ("submitted", job.submitted_at),
        ("started", job.started_at or ""),
        ("ended", job.ended_at or ""),
        ("run time", columns.elapsed(job) if job.started_at else ""),
        *_times(job),
        *_idle(job),
        ("output kept", _output_kept(job)),
        ("outputs", outputs),
        ("as of sequence", str(job.sequence)),
        ("spec", msgspec.json.format(bytes(job.spec), indent=0).decode()),
    ]


def _times(job: Job) -> list[tuple[str, str]]:
    """Return the job's time used and left, slice, deadline, dependencies, yields, and saved and lost work as (label, text)
    pairs.
    """
    remaining = "" if job.left_seconds is None else f", {_seconds(job.left_seconds)} left"
    shown = bool(job.preempted or job.left_seconds is not None) and job.array is None
    missed = " (missed)" if job.deadline_missed else ""
    last = job.preempted_for or {}
    by_rule = f", last to job {last.get('job')} ({last.get('rule', '').replace('_', ' ')})" if last.get("job") else ""
    return [
        ("time used", f"{_seconds(job.used_seconds)}{remaining}" if shown else ""),
        ("slice", _seconds(job.slice_seconds) if job.slice_seconds else ""),
        ("deadline", f"{job.deadline}{missed}" if job.deadline else ""),
        ("after", ", ".join(f"job {one['job']} {one['state']}" for one in job.after)),
        ("yielded", f"{job.preempted} time{'' if job.preempted == 1 else 's'}{by_rule}" if job.preempted else ""),
        ("saved", f"{job.saved_at}{f' ({job.saved_note})' if job.saved_note else ''}" if job.saved_at else ""),
        ("lost", _seconds(job.lost_seconds) if job.lost_seconds else ""),
    ]


def _idle(job: Job) -> list[tuple[str, str]]:
    """Return since when the job is idle, the consequence, the evidence, and the end of its extension as (label, text) pairs."""
    status = "" if job.idle is None else columns.standing(job.idle, clock.now_ns())
    words = f"{status.removeprefix('idle ')}: {job.idle.words}" if job.idle is not None and job.idle.words else status
    return [("idle", words), ("extended", f"until {job.extended_until}" if job.extended_until else "")]


def _output_kept(job: Job) -> str:
    """Return the amount of output that the job's nodes keep, according to its job file."""
    words = msgspec.json.decode(job.spec, type=_SpecOutput).output
    return agent_fields.describe_output(agent_fields.output_of(words, ErrorCollector()))


def _seconds(seconds: int) -> str:
    return quantities.format_duration(seconds * SECOND_NS) if seconds else "0s"
