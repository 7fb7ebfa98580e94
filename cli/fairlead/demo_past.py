"""Scene of `fairlead demo` with its own log: what was at a moment, why a job waited then, what a larger limit would have done, what an
estimate said and what came, and a policy test that fails.

The answers are the cluster's, about the morning that it has just had. Start at `play`.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fairlead.client import Client
from fairlead.demo_session import QUEUE_FILE, PartResult
from fairlead_schemas.http.api import StartForecast
from fairlead_schemas.units.timestamps import parse_rfc3339, rfc3339

#: The queue with the limit, and the limit that it might have had.
QUEUE, LIMIT = "research/vision", 16
CHANGE: dict[str, Any] = {"queues": {QUEUE: {"maximum": {"nvidia.com/gpu": LIMIT}}}}
#: Pairs of plays: fewer show no effects.
SEEDS = 3

#: The job whose start is estimated, and for how long an estimate is waited for: the process that makes it begins with the first question.
ESTIMATED: dict[str, Any] = {
    "name": "estimated",
    "queue": "research/llm",
    "command": ["true"],
    "resources": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 8},
}
ESTIMATE_S, START_S, LOOK_S = 20.0, 30.0, 0.2
#: The policy that is tested: a limit below what a job of the morning needs.
SMALL_LIMIT = 4
POLICY_TEST: dict[str, Any] = {
    "log": {"load": "morning.load.jsonl.gz"},
    "policy": {"change": {"queues": {QUEUE: {"maximum": {"nvidia.com/gpu": SMALL_LIMIT}}}}},
    "seeds": SEEDS,
    "expect": [{"metric": "wait_mean", "queue": QUEUE, "worse_by_at_most": "10%"}],
}

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


# ---------------------------------------------------------------------------- what was said, and what came


def play_estimate(client: Client, say: Say) -> list[str]:
    """Ask when a job would start, submit it and compare. Return what is not as it must be, one line each."""
    forecast, note = _forecast(client)
    if forecast is None:
        say("estimate", f"no start was estimated: {note}")
        return []
    said, began_s = _said(forecast), time.monotonic()
    job = client.submit(ESTIMATED).id
    while not (shown := client.job(job)).nodes and time.monotonic() - began_s < START_S:
        time.sleep(LOOK_S)
    waited_s, nodes = time.monotonic() - began_s, ", ".join(shown.nodes)
    came = f"it started within {waited_s:.1f} s, on {nodes}" if nodes else f"it has not started within {START_S:g} s"
    say("estimate", f"job {job} {ESTIMATED['name']}: {said}; {came}")
    if forecast.at_once and forecast.nodes and nodes and forecast.nodes != shown.nodes:
        return [f"estimate: expected {', '.join(forecast.nodes)}, found {nodes}"]
    return []


def _forecast(client: Client) -> tuple[StartForecast | None, str]:
    """Return the estimate, or why there is none."""
    deadline = time.monotonic() + ESTIMATE_S
    note = "no process that estimates has answered"
    while time.monotonic() < deadline:
        (answer,) = client.dry_run([ESTIMATED])
        if answer.forecast is not None and not answer.forecast.note:
            return answer.forecast, ""
        note = answer.forecast.note if answer.forecast is not None else note
        time.sleep(LOOK_S)
    return None, note


def _said(forecast: StartForecast) -> str:
    if forecast.at_once:
        return f"estimated to start at once, on {', '.join(forecast.nodes)}"
    return f"estimated to start from {_clock(forecast.from_at or '')} to {_clock(forecast.to_at or '')}"


def play_policy_test(url: str, folder: Path, say: Say) -> list[str]:
    """Test a policy against the morning's own load, as a repository would. Return what is not as it must be, one line each."""
    from fairlead.commands.policy import report_of
    from fairlead_replay.policy_test import reports
    from fairlead_replay.whatif.record import LogWindow
    from fairlead_replay.whatif.sources import LoadExport, save_load_of_url

    save_load_of_url(url, LoadExport(LogWindow(), anonymous=False), folder / POLICY_TEST["log"]["load"])
    file = folder / "policy-test.yaml"
    file.write_bytes(msgspec.json.encode(POLICY_TEST))  # JSON is YAML
    report = report_of(file)
    lines = reports.text(report).splitlines()
    found = next((line for line in lines if QUEUE in line), lines[-1])
    status = report.verdicts.status
    say("policy", f"its test with {SMALL_LIMIT} GPUs for {QUEUE}: {' '.join(found.split())}")
    return [f"policy test: expected broken, found {status}"] if status == "met" else []
