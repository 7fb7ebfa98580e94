"""Two teams on one cluster, over HTTP: quotas from a file, borrowing, what the owner gets back, and why at every step."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import FairleadError, InputRefused
from fairlead_schemas.http.api import Job, Queue, QueueFileResult
from tests.system import story
from tests.system.cluster import StackCluster

pytestmark = [pytest.mark.nats, pytest.mark.slow]

GPU = "nvidia.com/gpu"
VISION, SPEECH = "research/vision", "research/speech"
#: Eight GPUs: six are promised, and whoever needs more borrows.
TEAMS: dict[str, Any] = {
    "queues": {
        "research": {
            "queues": {
                "vision": {"guaranteed": {GPU: 4}, "maximum": {GPU: 6}},
                "speech": {"guaranteed": {GPU: 2}, "preemption": {"protect": "0s"}},
            }
        },
        "shared": {},
    }
}
LONG = ["sleep", "600"]


class Teams:
    """The story, step by step, on a running cluster."""

    def __init__(self, cluster: StackCluster) -> None:
        self.cluster = cluster
        self.client = cluster.client

    def queue(self, path: str) -> Queue:
        return next(queue for queue in self.client.queues().items if queue.path == path)

    def job(self, queue: str, gpus: int, **more: Any) -> dict[str, Any]:
        resources = {GPU: gpus, "cpu": "100m", "memory": "16Mi"}
        return {"command": LONG, "queue": queue, "resources": resources, "time": {"total": "1h", "grace": "1s"}, **more}

    def submit(self, queue: str, gpus: int, **more: Any) -> str:
        return self.client.submit(self.job(queue, gpus, **more)).id

    def running(self, *jobs: str) -> None:
        self.cluster.until(lambda: all(self.of(job).state == "running" for job in jobs), f"{jobs} run")

    def of(self, job: str) -> Job:
        return self.client.job(job)

    def changes(self, job: str) -> dict[str, str]:
        """{kind: message} of what would start it."""
        return {change["kind"]: change["message"] for change in reversed(self.client.why(job)["changes"])}


def test_two_teams_share_a_cluster(tmp_path: Path) -> None:
    """Borrowing, a dry run, the owner's return, its victim's way back, a limit and what would change it, the past."""
    cluster = StackCluster(tmp_path, nodes=1)
    cluster.start()
    teams = Teams(cluster)
    try:
        _refuse_mistakes(teams)
        applied = teams.client.apply_queues(TEAMS)
        assert isinstance(applied, QueueFileResult) and applied.configured == 4
        borrowers = _borrow(teams)
        _try_out(teams, borrowers)
        owner, victim, before = _reclaim(teams, borrowers)
        _look_back(teams, victim, before)
        _wait_at_a_limit(teams)
        _remove_with_jobs(teams)
        _lower(teams, owner)
        told = cluster.run(lambda bus: story.read(bus, check=True))
        assert max(told.placed.values()) == max(told.started.values()) == 1
        assert cluster.run(story.state_equals_fold) == {"queue": True, "placer": True}
    finally:
        cluster.stop()


def _refuse_mistakes(teams: Teams) -> None:
    """Every mistake of a file is named, in its words; nothing of it is applied."""
    before = [queue.path for queue in teams.client.queues().items]
    wrong = {
        "queues": {"research": {"guaranteed": {GPU: 4}, "queues": {"vision": {"guaranteed": {GPU: 8}}}}, "new": {}}
    }
    with pytest.raises(InputRefused) as refused:
        teams.client.apply_queues(wrong)
    assert f"queues.research.guaranteed.{GPU}: the queues below are guaranteed 8 together, it has 4" in str(
        refused.value
    )
    answer = teams.cluster.post("/v1/queues:apply", json.dumps({"queues": {"a": {"weight": 0}, "b/": {}}}).encode())
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["queues.a.weight", "queues.b/"]
    assert [queue.path for queue in teams.client.queues().items] == before


def _borrow(teams: Teams) -> list[str]:
    """speech uses all there is while vision uses nothing; what it borrows is shown."""
    jobs = [teams.submit(SPEECH, 2) for _ in range(4)]
    teams.running(*jobs)
    speech = teams.queue(SPEECH)
    assert (speech.used["gpu"], speech.borrowed, speech.running) == (8000, {"gpu": 6000}, 4)
    return jobs


def _try_out(teams: Teams, borrowers: list[str]) -> None:
    """The dry run: quota afterwards, no job ahead, eligible victims with their loss, and an estimate; no job is
    created."""
    (found,) = teams.client.dry_run([teams.job(VISION, 4)])
    assert (found.checked, found.ahead, found.borrows) == ("queue", 0, {})
    (quota,) = [one for one in found.quota if one.queue == VISION]
    assert (quota.used, quota.after, quota.guaranteed, quota.maximum) == (0, 4000, 4000, 6000)
    assert quota.words == {"resource": GPU, "used": 0, "after": 4, "guaranteed": 4, "maximum": 6}
    assert found.reason is not None and found.reason.code == "no_place"
    assert {one.job for one in found.displaces} <= set(borrowers) and len(found.displaces) >= 2
    assert {one.rule for one in found.displaces} == {"over_guarantee"}
    assert f"{SPEECH} uses 6 GPUs over its guarantee, which {VISION} is owed" in found.displaces[0].message
    assert found.estimate is not None and found.estimate.start_at is not None and "time limits" in found.estimate.basis
    refused = teams.cluster.post("/v1/jobs:dryrun", json.dumps(teams.job("research", 1)).encode())
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "queue")
    assert len(teams.client.jobs().items) == len(borrowers)


def _reclaim(teams: Teams, borrowers: list[str]) -> tuple[str, str, int]:
    """vision gets its guarantee: two runs yield, and wait again as preempted, for it and by that rule."""
    before = teams.client.jobs().sequence
    owner = teams.submit(VISION, 4)
    teams.running(owner)
    teams.cluster.until(
        lambda: (
            sum(teams.of(job).preempted for job in borrowers) == 2
            and all(teams.of(job).state in ("running", "queued", "offered") for job in borrowers)
        ),
        "two of the borrowers wait again",
    )
    victims = [job for job in borrowers if teams.of(job).preempted]
    for victim in victims:
        job = teams.of(victim)
        assert (job.attempt, job.preempted_for) == (2, {"job": owner, "rule": "over_guarantee"})
    why = teams.client.why(victims[0])["reason"]
    assert why["code"] == "preempted"
    assert why["message"].startswith(f"yielded to job {owner} (queue {SPEECH} used 6 GPUs over its guarantee")
    requeued = [event for event in teams.client.events(job=victims[0]) if event.type == "fairlead.job.requeued.v1"]
    assert requeued[0].data["reason"] == "preempted"
    assert teams.queue(SPEECH).borrowed == {"gpu": 2000}
    return owner, victims[0], before


def _look_back(teams: Teams, victim: str, before: int) -> None:
    """At the moment before, the victim ran and no stop was requested."""
    then = teams.client.why(victim, at=str(before))
    assert (then["state"], then["reason"]["code"], then["sequence"]) == ("running", "running", before)
    assert teams.client.cluster(at=str(before))["gpus_free"] == 0


def _wait_at_a_limit(teams: Teams) -> None:
    """A job over its queue's maximum says what it would take; the same at its own sequence afterwards."""
    waiting = teams.submit(VISION, 3)
    why = teams.client.why(waiting)
    assert (why["reason"]["code"], why["state"]) == ("maximum", "queued")
    assert why["reason"]["message"] == f"queue {VISION} is at 4 of 6 GPUs; this needs 3"
    assert teams.changes(waiting)["wait"] == (
        f"starts when 1 GPU of {VISION} is given back and 3 GPUs of the pool are given back"
    )
    teams.client.cancel(waiting)
    assert teams.of(waiting).state == "cancelled"
    then = teams.client.why(waiting, at=str(why["sequence"]))
    assert (then["reason"], then["changes"]) == (why["reason"], why["changes"])


def _remove_with_jobs(teams: Teams) -> None:
    """A queue with waiting jobs is removed only if another queue is named for them."""
    held = teams.submit("shared", 1, startAt="2099-01-01T00:00:00Z")
    with pytest.raises(FairleadError, match="1 job waits in it; name another queue for them"):
        teams.client.delete_queue("shared")
    assert teams.queue("shared").waiting == 1
    teams.client.delete_queue("shared", move_to=SPEECH)
    assert teams.of(held).queue == SPEECH
    assert "shared" not in [queue.path for queue in teams.client.queues().items]


def _lower(teams: Teams, owner: str) -> None:
    """A maximum below the use stops no run, unless a reclaim is requested; the stopped one waits again."""
    teams.client.configure_queue(VISION, {"maximum": {GPU: 2}})
    assert teams.of(owner).state == "running"
    file = {"queues": {VISION: {"maximum": {GPU: 2}}}}
    applied = teams.client.apply_queues(file, reclaim=True)
    assert isinstance(applied, QueueFileResult) and applied.unchanged == 1
    teams.cluster.until(lambda: teams.of(owner).state == "queued", "the run has given back what is too much")
    reason = teams.client.why(owner)["reason"]
    assert reason["message"].endswith("; now asks for 4 GPUs; queue research/vision may hold 2 at most")
    assert teams.of(owner).preempted == 1
