"""Slurm's lists and changes with the options that people and their wrappers type: what is requested, and what is printed."""

from pathlib import Path

import msgspec
import pytest

from fairlead_schemas.http.notifications import NewNotificationRule
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, ended, job_document, node_document, page, problem, queue_document

WAITING = job_document("9", state="queued", nodes=[], gpus={}, started_at=None, priority=70, name="sweep")


@pytest.fixture
def jobs(gateway: GatewayStub) -> GatewayStub:
    """A gateway with a waiting, a failed and an ended job, and an element of an array."""
    found = (WAITING, ended("failed", job_id="10", exit_code=3), ended("succeeded", job_id="12_1", exit_code=0))
    gateway.on("GET", "/v1/jobs", page(*found))
    return gateway


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("squeue", "-h", "-o", "%i|%.5Q|%t"), "9|   70|PD\n10|   50|F\n12_1|   50|CD\n"),
        (("squeue", "-h", "-j", "12,10", "-o", "%A", "-S", "-i"), "12_1\n10\n"),
        (("squeue", "-h", "-w", "n[1-2]", "-O", "JobID:3,Name:4"), "10  trai\n12_ trai\n"),
        (("sacct", "-n", "-P", "-X", "-j", "10", "-o", "JobID,State,ExitCode,MaxRSS"), "10|FAILED|3:0|\n"),
        (
            ("sacct", "-p", "-j", "12", "--format=JobIDRaw,Elapsed,Start,NodeList%3"),
            "JobIDRaw|Elapsed|Start|NodeList|\n12_1|00:01:30|2026-01-01T00:00:01|n1|\n",
        ),
        (("sprio", "-h", "-j", "9"), "9 research ada 70\n"),
        (("squeue", "-h", "-a", "-j", "10", "-o", "%i %c %m %B %E %Z"), "10 1 1024M n1\n"),
        (
            ("sacct", "-n", "-P", "-D", "-N", "n1", "-j", "10", "--delimiter=;", "-o", "JobID,ReqMem,NTasks,CPUTime"),
            "10;1024M;;00:01:30\n",
        ),
    ],
)
def test_lists_have_the_asked_for_columns(jobs: GatewayStub, run: Run, words: tuple[str, ...], expected: str) -> None:
    """Letters and words with widths, order, bars, and fields that nothing here has a value for."""
    ran = run(*words)
    assert (ran.code, ran.out) == (0, expected)


def test_states_are_ours_in_the_request(jobs: GatewayStub, run: Run) -> None:
    """Slurm's words and letters in any case; other filters go along."""
    run("squeue", "-t", "PD,running", "-u", "ada,ben", "-p", "research", "-n", "a,b")
    asked = jobs.requests[-1].url.params
    assert set(asked["state"].split(",")) == {"scheduled", "queued", "held", "offered", "running"}
    assert (asked["user"], asked["queue"], asked["name"]) == ("ada,ben", "research", "a,b")
    run("squeue", "--states=all")
    assert "state" not in jobs.requests[-1].url.params


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("squeue", "-o", "%i %X"), 'found "%X"'),
        (("squeue", "-t", "SLEEPY"), 'found "SLEEPY"'),
        (("squeue", "-S", "-X"), 'found "-X"'),
        (("sacct", "--format=JobID,Mood"), 'found "Mood"'),
        (("sacct", "--format=JobID%wide"), 'found "JobID%wide"'),
        (("scancel",), "expected job ids"),
        (("scancel", "-s", "USR3", "9"), 'expected one of SIGUSR1, SIGUSR2, SIGINT, SIGHUP, found "SIGUSR3"'),
        (("scontrol", "frobnicate", "1"), 'found "frobnicate 1"'),
        (("scontrol", "update", "JobId=1", "Mood=bad"), 'found "mood"'),
        (("scontrol", "update", "JobId=1", "Priority=high"), 'found "high"'),
        (("scontrol", "update", "NodeName=n1", "State=party"), "State=drain or State=resume"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    jobs: GatewayStub, run: Run, words: tuple[str, ...], message: str
) -> None:
    """Nothing is changed."""
    ran = run(*words)
    assert ran.code == 2 and message in ran.err
    assert {request.method for request in jobs.requests} <= {"GET"}


def test_nodes_are_listed_one_by_one_and_shown(gateway: GatewayStub, run: Run) -> None:
    """sinfo -N, its letters, and scontrol show node."""
    gateway.on("GET", "/v1/nodes", page(node_document(), node_document(id="n2", state="lost", reason="power")))
    gateway.on("GET", "/v1/queues", page(queue_document("default")))
    assert run("sinfo", "-N", "-h").out == "n1 1 default* mix\nn2 1 default* down\n"
    assert run("sinfo", "-h", "-t", "down", "-o", "%P %D %G %N").out == "default* 1 gpu:8 n2\n"
    assert run("sinfo", "-R", "-h").out == "power n2\n"
    assert "State=MIX" in run("scontrol", "show", "node", "n1").out
    assert run("scontrol", "show", "node", "n9").code == 2
    assert run("scontrol", "show", "hostnames", "n[08-10],x").out == "n08\nn09\nn10\nx\n"
    assert "default" in run("sshare").out


def test_scontrol_changes_jobs(gateway: GatewayStub, run: Run) -> None:
    """Slurm's times and names become the fields of a job file."""
    gateway.on("PATCH", "/v1/jobs/1", job_document("1"))
    ran = run("scontrol", "update", "JobId=1", "TimeLimit=1-12:00:00", "Priority=70", "JobName=x")
    assert (ran.code, ran.out) == (0, "job/1\n")
    assert gateway.patches() == [{"time": {"total": "129600s"}, "priority": 70, "name": "x"}]
    gateway.on("GET", "/v1/jobs/1", ended("failed", job_id="1", exit_code=3))
    assert "JobState=FAILED" in run("scontrol", "show", "job", "1").out
    seen = run("seff", "1").out
    assert "Job Wall-clock time: 00:01:30" in seen and "nothing was measured" in seen


def test_scancel_by_filters_cancels_the_listed_jobs_only(gateway: GatewayStub, run: Run) -> None:
    """Without a user they are the caller's own; none found is no error."""
    gateway.on("GET", "/v1/jobs", page(WAITING))
    gateway.on("POST", "/v1/jobs/9:cancel", {"id": "9", "state": "cancelled"})
    ran = run("scancel", "--name=sweep", "--state=PENDING")
    assert (ran.code, ran.out) == (0, "job/9\n")
    gateway.on("GET", "/v1/jobs", page())
    assert (run("scancel", "-u", "ben").code, run("scancel", "-u", "ben").out) == (0, "")


def test_partitions_are_queues_that_are_held_and_drained(gateway: GatewayStub, run: Run) -> None:
    """scontrol's states of a partition are the verbs of queues; sinfo and scontrol show them, also below a closed queue."""
    closed = {"by": "ann", "reason": "", "since": "2026-01-01T00:00:00.000Z"}
    gateway.on("GET", "/v1/nodes", page(node_document(), node_document(id="n2", state="lost")))
    gateway.on(
        "GET",
        "/v1/queues",
        page(queue_document("a", held=closed), queue_document("a/b", drained=closed), queue_document("default")),
    )
    assert run("sinfo", "-h", "-t", "mix", "-o", "%P|%a").out == "a|down\na/b|inact\ndefault*|up\n"
    assert run("sinfo", "-h", "-d", "-p", "default", "-o", "%N").out == "n2\n"
    assert run("sinfo", "-h", "-r", "-p", "default", "-o", "%N").out == "n1\n"
    assert "State=DOWN Default=NO\n   TotalNodes=2 Nodes=n1,n2" in run("scontrol", "show", "partition", "a").out
    assert run("scontrol", "show", "partition", "nope").code == 2
    for verb in ("hold", "drain", "release"):
        gateway.on("POST", f"/v1/queues/a/b:{verb}", queue_document("a/b"))
    for state in ("DOWN", "drain", "INACTIVE", "UP"):
        assert run("scontrol", "update", "PartitionName=a/b", f"State={state}").code == 0
    asked = [request.url.path.partition(":")[2] for request in gateway.requests if request.method == "POST"]
    assert asked == ["hold", "drain", "hold", "drain", "release"]
    refused = run("scontrol", "update", "PartitionName=a/b", "State=asleep")
    assert refused.code == 2 and 'found "ASLEEP"' in refused.err


def test_scontrol_requeues_and_sacct_names_its_fields(gateway: GatewayStub, run: Run) -> None:
    """A requeue is the verb's own; --helpformat needs no cluster."""
    gateway.on("POST", "/v1/jobs/9:requeue", WAITING)
    assert run("scontrol", "requeue", "9").out == "job/9\n"
    fields = run("sacct", "--helpformat").out.split()
    assert {"JobID", "State", "Elapsed", "ExitCode", "NodeList", "maxrss"} <= set(fields)


def test_scancel_takes_signals_that_end_a_job_and_more_filters(gateway: GatewayStub, run: Run) -> None:
    """Signals that end it are a cancel; an account and nodes choose the jobs."""
    gateway.on("GET", "/v1/jobs", page(job_document("9"), job_document("10", nodes=["n2"])))
    for job in ("9", "10"):
        gateway.on("POST", f"/v1/jobs/{job}:cancel", {"id": job, "state": "stopping"})
    for signal in ("TERM", "SIGKILL", "9", "15"):
        assert run("scancel", "-f", "--signal", signal, "9").out == "job/9\n"
    ran = run("scancel", "-b", "-A", "llm", "-w", "n[2-3]")
    assert (ran.code, ran.out) == (0, "job/10\n")
    asked = next(request for request in reversed(gateway.requests) if request.method == "GET")
    assert asked.url.params["project"] == "llm"


def test_scancel_sends_other_signals_to_what_runs(gateway: GatewayStub, run: Run) -> None:
    """As `fairlead cancel --signal`; filters choose the running jobs."""
    gateway.on("GET", "/v1/jobs", page(job_document("9", state="queued"), job_document("10")))
    for job in ("9", "10"):
        gateway.on("POST", f"/v1/jobs/{job}:signal", job_document(job))
    for signal in ("USR1", "10", "SIGUSR1"):
        assert run("scancel", "-s", signal, "9").out == "job/9\n"
        assert gateway.requests[-1].read() == b'{"signal":"SIGUSR1"}'
    assert run("scancel", "-s", "INT", "-A", "llm").out == "job/10\n"


def test_mail_of_a_script_becomes_a_rule_of_its_job(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """From its submit on. With sign-on it goes to one's own address; where no rule can be made, the job is there and the remark says why."""
    gateway.on("POST", "/v1/jobs", {"id": "12", "sequence": 40}, 201)
    rule = NewNotificationRule(
        id="n1",
        owner="ada",
        name="",
        channel="mail",
        to="",
        on=["end"],
        scopes=["job:12"],
        elements=False,
        made_at="2026-01-01T00:00:00.000Z",
        state="ok",
        sequence=41,
        error="",
        failing_since=None,
        sent=0,
        sent_at=None,
        secret="",
    )
    gateway.on("POST", "/v1/notifications", msgspec.to_builtins(rule), 201)
    (tmp_path / "train.sh").write_text(
        "#!/bin/bash\n#SBATCH --mail-type=END\n#SBATCH --mail-user=a@example.org\ntrue\n"
    )
    for verb in ("sbatch", "submit"):
        ran = run(verb, str(tmp_path / "train.sh"))
        assert ran.code == 0 and "NOT FOLLOWED" not in ran.err
        sent = msgspec.json.decode(gateway.requests[-1].read())
        wanted = {
            "on": ["end"],
            "mail": "a@example.org",
            "name": "job 12",
            "scopes": ["job:12"],
            "elements": False,
            "after": 40,
        }
        assert sent == wanted
        assert "mail" not in str(msgspec.json.decode(gateway.requests[-2].read()).get("(mail)", ""))
    detail = "expected true: mail goes to your own address"
    code, document = problem(422, detail, errors=[{"field": "mail", "message": detail}])
    gateway.on("POST", "/v1/notifications", document, code)
    ran = run("sbatch", str(tmp_path / "train.sh"))
    assert (ran.code, ran.out) == (0, "Submitted batch job 12\n") and "--mail-type is NOT FOLLOWED" in ran.err
    assert msgspec.json.decode(gateway.requests[-1].read())["mail"] is True, "its second try"
