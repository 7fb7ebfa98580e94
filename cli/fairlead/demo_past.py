"""Scene of `fairlead demo` with its own log: what was at a moment, why a job waited then, and what a larger limit would have done.

The answers are the cluster's, about the morning that it has just had. Start at `play`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fairlead.client import Client
from fairlead.demo_session import QUEUE_FILE, PartResult
from fairlead_schemas.units.timestamps import parse_rfc3339, rfc3339

#: The queue with the limit, and the limit that it might have had.
QUEUE, LIMIT = "research/vision", 16
CHANGE: dict[str, Any] = {"queues": {QUEUE: {"maximum": {"nvidia.com/gpu": LIMIT}}}}
#: Pairs of plays: fewer show no effects.
SEEDS = 3

type Say = Callable[[str, str], None]


def play(client: Client, results: Mapping[str, PartResult], say: Say) -> list[str]:
    """Ask. Return what is not as it must be, one line each."""
    waited = next((each for each in results.values() if each.part.waits == "maximum" and each.job is not None), None)
    if waited is None or waited.job is None:
        return ["nothing waited at its queue's limit, so there is nothing to ask about"]
    at = _submitted(client, waited.job.id)
    then = client.cluster(at=at)
    say("then", f"at {_clock(then['at'])} (sequence {at}) {_counts(then)}")
    why = client.why(waited.job.id, at=at)["reason"]
    say("why then", f"job {waited.job.id} {waited.part.spec['name']}: {why['message']}")
    wrong = [] if why["code"] == "maximum" else [f"why at {at}: expected maximum, found {why['code']}"]
    study = client.start_whatif(CHANGE, seeds=SEEDS)
    for each in client.whatif_progress(study.id):
        study = each
    study = client.whatif(study.id)
    if study.study is None:
        return [*wrong, f"what if: {study.message or study.state}"]
    say("what if", _what_if(study.study))
    return wrong


def _submitted(client: Client, job: str) -> str:
    """Return the sequence at which a job entered."""
    event = next(iter(client.events(job=job, types="JobSubmitted")))
    return event.id.partition(".")[0]


def _clock(at: str) -> str:
    return rfc3339(parse_rfc3339(at))[11:19]


def _counts(cluster: dict[str, Any]) -> str:
    jobs = ", ".join(f"{count} {state}" for state, count in cluster["jobs"].items() if count)
    return f"{cluster['gpus'] - cluster['gpus_free']} of {cluster['gpus']} GPUs were held; jobs: {jobs}"


def _what_if(study: dict[str, Any]) -> str:
    """Return the grade, the change and what it would have done, in one line."""
    before = QUEUE_FILE["queues"]["research"]["queues"]["vision"]["maximum"]["nvidia.com/gpu"]
    change = f"grade {study['grade']}, {study['seeds']} pairs: with {LIMIT} GPUs instead of {before} for {QUEUE}"
    if study["withheld"]:
        return f"{change} nothing can be said; {'; '.join(study['because'])}"
    wait = next(
        (each for each in study["effects"] if (each["name"], each["measure"]) == (QUEUE, "wait_mean")),
        None,
    )
    if wait is None:
        return f"{change} its jobs are too few"
    verdict = wait["verdict"] or "no difference that this log can show"
    return f"{change} its jobs wait {wait['variant']:.1f} s instead of {wait['control']:.1f} s: {verdict}"
