"""Jobs with checkpoints, on real processes: notice, save, end, wait, resume; and the loss. The trainer is a shell
script that knows nothing of Fairlead except the variables and the signal."""

import time
from pathlib import Path
from typing import Any

import pytest

from fairlead_schemas.http.api import Job
from tests.system import story
from tests.system.cluster import StackCluster

pytestmark = [pytest.mark.nats, pytest.mark.slow]

GPU = "nvidia.com/gpu"
#: Counts steps to the end; goes on from the file that its last attempt has saved, says each start and save.
TRAINER = """
state="$STATE/steps"; step=$(cat "$state" 2>/dev/null || echo 0)
echo "attempt $FAIRLEAD_ATTEMPT (${FAIRLEAD_RESTARTED:-new}) begins at $step"
save() { echo "$step" > "$state.new"; mv "$state.new" "$state"; echo "step=$step" > "$FAIRLEAD_CHECKPOINT_FILE"; }
trap 'save; echo "saved at $step"; exit 0' USR1
while [ "$step" -lt "$STEPS" ]; do
  sleep 0.1 & wait $!; step=$((step + 1)); [ $((step % 20)) -ne 0 ] || save
done
save; echo "done at $step"
"""
#: Never saves, whatever it is told.
FORGETFUL = 'echo "attempt $FAIRLEAD_ATTEMPT begins at 0"; while true; do sleep 0.1; done'
QUEUES: dict[str, Any] = {
    "queues": {
        "owner": {"guaranteed": {GPU: 4}},
        "guest": {"preemption": {"protect": "0s"}},
        "line": {"preemption": {"protect": "0s"}},
    }
}


class Lab:
    """One node of eight (played) GPUs, and people who train on it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.cluster = StackCluster(data / "stack", nodes=1)
        self.cluster.start()
        self.client = self.cluster.client
        self.client.apply_queues(QUEUES)

    def submit(self, queue: str, script: str, gpus: int, **more: Any) -> str:
        env = {"STATE": str(self.state(more.pop("state", "none"))), "STEPS": str(more.pop("steps", 100_000))}
        resources = {GPU: gpus, "cpu": "100m", "memory": "16Mi"}
        words = {"command": ["sh", "-c", script], "queue": queue, "env": env, "resources": resources, **more}
        return self.client.submit({"time": {"grace": "5s"}, **words}).id

    def state(self, name: str) -> Path:
        path = self.data / name
        path.mkdir(exist_ok=True)
        return path

    def of(self, job: str) -> Job:
        return self.client.job(job)

    def running(self, *jobs: str, attempt: int = 1) -> None:
        def run() -> bool:
            return all((self.of(job).state, self.of(job).attempt) == ("running", attempt) for job in jobs)

        self.cluster.until(run, f"{jobs} run as attempt {attempt}")

    def waits_again(self, *jobs: str) -> None:
        self.cluster.until(lambda: all(self.of(job).preempted == 1 for job in jobs), f"{jobs} have yielded")

    def output(self, job: str) -> str:
        return b"".join(self.client.logs(job)).decode()

    def end_of(self, job: str) -> dict[str, Any]:
        """The end of its first run, as the log has it."""
        ends = [event for event in self.client.events(job=job) if event.type == "fairlead.run.ended.v1"]
        data = ends[0].data
        assert isinstance(data, dict)
        return data


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    lab = Lab(tmp_path)
    yield lab
    lab.cluster.stop()


def test_a_run_with_a_checkpoint_is_preempted_and_resumes(lab: Lab) -> None:
    """A guaranteed job arrives: of two borrowers the one that has just saved is preempted, loses nothing, and resumes;
    the other, which would have lost all, continues. When it is preempted, too, it loses all."""
    forgetful = lab.submit("guest", FORGETFUL, 4)
    saver = lab.submit("guest", TRAINER, 4, state="saver", checkpoint={"signal": "SIGUSR1", "notice": "1m"})
    lab.running(forgetful, saver)
    assert "attempt 1 (new) begins at 0" in _until_said(lab, saver, "begins")
    lab.cluster.until(lambda: lab.of(saver).saved_note != "", "it has saved by itself")
    owner = lab.submit("owner", "sleep 600", 4)
    lab.waits_again(saver)
    lab.running(owner, forgetful)
    end = lab.end_of(saver)
    assert (end["outcome"], end["exit_code"], end["preempted"]) == ("stopped", 0, True)
    assert end["saved_ns"] > end["noticed_ns"] > 0
    found = lab.of(saver)
    step = int(found.saved_note.removeprefix("step="))
    assert step >= 20
    lab.client.cancel(owner)
    lab.running(saver, attempt=2)
    assert f"attempt 2 (preempted) begins at {step}" in _until_said(lab, saver, "attempt 2")
    _check_rows(lab, saver)


def test_a_run_without_checkpoints_loses_all_its_work(lab: Lab) -> None:
    """It gets no notice, since it could not use it; its loss is given in seconds."""
    forgetful = lab.submit("guest", FORGETFUL, 8)
    lab.running(forgetful)
    time.sleep(3)
    lab.submit("owner", "sleep 600", 4)
    lab.waits_again(forgetful)
    end = lab.end_of(forgetful)
    assert (end["outcome"], end.get("noticed_ns", 0), end.get("saved_ns", 0)) == ("stopped", 0, 0)
    assert lab.of(forgetful).lost_seconds >= 3
    assert "of work, none of which it had reported as saved" in lab.client.why(forgetful)["reason"]["message"]


def test_a_slice_that_is_over_is_a_stop_like_any_other(lab: Lab) -> None:
    """Two trainers of one queue take turns by their slices, each going on where it was, until both are done."""
    words: dict[str, Any] = {
        "time": {"slice": "2s", "grace": "5s"},
        "checkpoint": {"signal": "USR1", "notice": "30s"},
        "steps": 60,
    }
    first, second = (lab.submit("line", TRAINER, 8, state=name, **words) for name in ("first", "second"))
    lab.cluster.until(lambda: all(lab.of(job).state == "succeeded" for job in (first, second)), "both are done", 120)
    assert lab.of(first).preempted >= 1
    assert lab.of(first).preempted_for == {"job": second, "rule": "over_slice"}
    assert "done at 60" in lab.output(first)
    rules = {event.data["rule"] for event in lab.client.events() if event.type == "fairlead.preemption.started.v1"}
    assert rules == {"over_slice"}


def test_a_command_may_save_and_a_cancel_may_wait_for_it(lab: Lab) -> None:
    """The command runs next to the program, as the same user, and its success is the mark; without --save a cancel does
    not wait."""
    command = 'echo "$FAIRLEAD_STOP_REASON of job $FAIRLEAD_JOB" > "$STATE/told"'
    checkpoint = {"command": ["sh", "-c", command], "notice": "1m"}
    jobs = [lab.submit("guest", FORGETFUL, 1, state=name, checkpoint=checkpoint) for name in ("asked", "unasked")]
    lab.running(*jobs)
    lab.client.cancel(jobs[0], save=True)
    lab.client.cancel(jobs[1])
    lab.cluster.until(lambda: all(lab.of(job).state == "cancelled" for job in jobs), "both are cancelled")
    assert (lab.state("asked") / "told").read_text() == f"cancelled of job {jobs[0]}\n"
    assert not (lab.state("unasked") / "told").exists()
    assert lab.end_of(jobs[0])["saved_ns"] > 0


def _until_said(lab: Lab, job: str, words: str) -> str:
    lab.cluster.until(lambda: words in lab.output(job), f'{job} says "{words}"')
    return lab.output(job)


def _check_rows(lab: Lab, saver: str) -> None:
    """SQL says the same, and the log is whole."""
    query = f"select noticed_at is not null, saved_at > noticed_at, lost_seconds, epoch(ended_at - started_at) from runs where job = '{saver}' and attempt = 1 and ended_at is not null"
    lab.cluster.until(lambda: bool(lab.client.sql(query)["rows"]), "telemetry has the run's end")
    noticed, saved, lost, ran = lab.client.sql(query)["rows"][0]
    assert (noticed, saved) == (True, True)
    assert 0 <= lost < ran
    told = lab.cluster.run(lambda bus: story.read(bus, check=True))
    assert max(told.placed.values()) == max(told.started.values()) == 1
    assert lab.cluster.run(story.state_equals_fold) == {"queue": True, "placer": True}
