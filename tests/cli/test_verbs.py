"""Verbs against a stub gateway: what they ask, what they print, how they end."""

import io
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from fairlead.commands import options
from fairlead.errors import hint_for
from fairlead.verbs import ALIASES, GROUPS, VERBS, Verb, load
from tests.cli.conftest import Run
from tests.cli.gateway_stub import (
    GatewayStub,
    applied,
    ended,
    job_document,
    node_document,
    page,
    problem,
    queue_document,
    trial_document,
)

SUBMITTED = {"id": "812", "state": "queued", "sequence": 41}


def test_submit_prints_the_id_alone_when_piped(gateway: GatewayStub, run: Run) -> None:
    """A script gets the id and nothing else on stdout; the job file carries the flags."""
    gateway.on("POST", "/v1/jobs", SUBMITTED, 201)
    ran = run(
        "submit",
        "--gpus",
        "2",
        "--queue",
        "research",
        "--time",
        "1h",
        "--workdir",
        "/d",
        "--",
        "python",
        "x.py",
        "--lr",
        "1",
    )
    assert (ran.code, ran.out, ran.err) == (0, "812\n", "")
    assert gateway.bodies() == [
        {
            "command": ["python", "x.py", "--lr", "1"],
            "queue": "research",
            "resources": {"nvidia.com/gpu": 2},
            "time": {"total": "1h"},
            "workdir": "/d",
        }
    ]
    assert gateway.requests[0].headers["X-Fairlead-User"] == "ada"
    assert len(gateway.requests[0].headers["Idempotency-Key"]) >= 16


def test_a_script_is_submitted_with_its_arguments(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """Options after the script are the script's; `--nodes` before it wins over its directive; warnings are loud."""
    (tmp_path / "a.sh").write_text("#!/bin/sh\n#SBATCH --nodes=2 --nice=10\ntrue\n")
    gateway.on("POST", "/v1/jobs", SUBMITTED, 201)
    ran = run("submit", "--nodes", "3", str(tmp_path / "a.sh"), "--nodes", "9")
    assert (ran.code, ran.out) == (0, "812\n")
    assert ran.err.startswith("warning: a.sh: --nice is NOT FOLLOWED")
    body = gateway.bodies()[0]
    assert (body["nodes"], body["command"][-2:], body["workdir"]) == (3, ["--nodes", "9"], str(Path.cwd()))


def test_a_command_that_is_no_file_needs_dashes(gateway: GatewayStub, run: Run) -> None:
    """`fairlead submit python x.py` is refused with the exact command to type, and nothing is sent."""
    ran = run("submit", "python", "x.py")
    assert (ran.code, gateway.requests) == (2, [])
    assert "hint: for a command: fairlead submit -- python x.py" in ran.err


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (ended("succeeded", exit_code=0), 0),
        (ended("failed", exit_code=3), 3),
        (ended("failed", signal=9), 137),
        (ended("failed"), 1),
        (ended("cancelled"), 1),
    ],
)
def test_submit_wait_ends_with_the_jobs_own_code(
    gateway: GatewayStub, run: Run, document: dict[str, object], code: int
) -> None:
    """`submit --wait` is as good as running the command: its exit code, or 128 + its signal."""
    gateway.on("POST", "/v1/jobs", SUBMITTED, 201)
    gateway.on("GET", "/v1/jobs/812", document)
    assert run("submit", "--wait", "--", "true").code == code


def test_wait_times_out_with_124(gateway: GatewayStub, run: Run) -> None:
    """A job that has not ended in time ends the wait with 124, and its id is named."""
    gateway.on("GET", "/v1/jobs/812", job_document())
    ran = run("wait", "812", "--timeout", "1ms")
    assert (ran.code, ran.err) == (124, "error: not ended within 0.001 s: 812\n")


@pytest.mark.parametrize(("status", "code"), [(404, 3), (401, 4), (403, 4), (409, 5), (422, 2), (503, 6), (500, 1)])
def test_errors_become_exit_codes(gateway: GatewayStub, run: Run, status: int, code: int) -> None:
    """Every kind of refusal has its promised exit code, its words and its hint."""
    gateway.answers[("GET", "/v1/jobs/812")] = problem(status, "no such luck", hint="try again")
    ran = run("show", "812")
    assert (ran.code, ran.out, ran.err) == (code, "", "error: no such luck\nhint: try again\n")


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ({}, "as its node's settings have it"),
        ({"output": {"keep": "7d"}}, "for 7d after its end, or less where its node's settings are lower"),
    ],
)
def test_show_has_how_long_output_is_kept(gateway: GatewayStub, run: Run, output: dict[str, Any], line: str) -> None:
    """From the job file; the node's own settings are the bound."""
    gateway.on("GET", "/v1/jobs/812", job_document(nodes=[], spec={"command": ["true"], **output}))
    ran = run("show", "812")
    assert ran.code == 0
    (found,) = (each for each in ran.out.splitlines() if each.startswith("output kept"))
    assert found.removeprefix("output kept").strip(" :") == line


def test_usage_errors_are_2(run: Run) -> None:
    """An unknown option, verb or value never reaches the network."""
    assert [
        run("jobs", "--frob").code,
        run("frob").code,
        run("cancel", "x!").code,
        run("wait", "1", "--timeout", "soon").code,
    ] == [2, 2, 2, 2]


@pytest.mark.connected
def test_unreachable_is_6(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a listener: exit code 6 and the remedy."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_URL", "http://127.0.0.1:1")
    ran = run("jobs")
    assert ran.code == 6
    assert "hint: start a local cluster with `fairlead up`" in ran.err
    assert run("context", "add", "prod", "http://127.0.0.1:1").code == 0
    assert run("jobs").err.endswith("hint: this is the context prod; `fairlead context list` has the others\n")


def test_field_errors_are_named(gateway: GatewayStub, run: Run) -> None:
    """A refusal of several fields names each with its path."""
    errors = [{"field": "nodes", "message": "expected 1 to 4096"}, {"field": "name", "message": "too long"}]
    gateway.answers[("POST", "/v1/jobs")] = problem(422, "nodes: expected 1 to 4096", errors=errors)
    assert run("submit", "--", "true").err == "error: nodes: expected 1 to 4096\n  name: too long\n"


def test_refusals_by_the_cluster_have_the_lines_of_the_file(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """Of one job and of several; what stood on the command line has no line."""
    (tmp_path / "one.yaml").write_text("command: [a]\n\nqueue: x\n")
    gateway.answers["POST", "/v1/jobs"] = problem(422, "no", errors=[{"field": "queue", "message": "no queue"}])
    assert run("submit", "-f", str(tmp_path / "one.yaml")).err.splitlines()[1] == "  one.yaml line 3: queue: no queue"
    (tmp_path / "two.yaml").write_text("command: [a]\n---\ncommand: [b]\nqueue: x\n")
    errors = [{"field": "[1].queue", "message": "no queue"}]
    gateway.answers["POST", "/v1/jobs"] = problem(422, "no", errors=errors)
    assert run("submit", "-f", str(tmp_path / "two.yaml")).err.splitlines()[1] == "  two.yaml line 4: queue: no queue"
    gateway.answers["POST", "/v1/jobs"] = problem(422, "no", errors=[{"field": "priority", "message": "too high"}])
    refused = run("submit", "-f", str(tmp_path / "one.yaml"), "--priority", "900")
    assert refused.err.splitlines()[1] == "  priority: too high"


def test_an_unknown_queue_is_refused_with_how_to_create_it(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """A new cluster has one queue; the command to type is in the refusal, for one job and for several."""
    gateway.answers[("POST", "/v1/jobs")] = problem(422, 'no queue "x"', type="urn:fairlead:problem:unknown_queue")
    ran = run("submit", "--queue", "x", "--", "true")
    assert (ran.code, ran.err.splitlines()[0]) == (2, 'error: no queue "x"')
    assert "hint: `fairlead queues` lists them; `fairlead queues apply -f queues.yaml` creates one" in ran.err
    (tmp_path / "two.yaml").write_text("command: [a]\n---\ncommand: [b]\nqueue: x\n")
    reason = {"code": "unknown_queue", "message": 'no queue "x"'}
    gateway.on("POST", "/v1/jobs", [SUBMITTED, {"state": "rejected", "sequence": 41, "reason": reason}])
    assert run("submit", "-f", str(tmp_path / "two.yaml")).err == ran.err


def test_the_queue_file_of_the_hint_and_the_readme_is_valid(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """Users can copy it, and the job file next to it names that queue."""
    line = "{queues: {research: {queues: {vision: {maximum: {nvidia.com/gpu: 16}}}}}}"
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert (line in readme, line in hint_for("unknown_queue"), "queue: research/vision" in readme) == (True, True, True)
    (tmp_path / "queues.yaml").write_text(line)
    gateway.on("POST", "/v1/queues:apply", applied())
    assert run("queues", "apply", "-f", str(tmp_path / "queues.yaml")).code == 0
    assert gateway.bodies() == [{"queues": {"research": {"queues": {"vision": {"maximum": {"nvidia.com/gpu": 16}}}}}}]


def test_json_errors_are_the_apis_own(gateway: GatewayStub, run: Run) -> None:
    """A user of JSON gets the problem document on stderr."""
    gateway.answers[("GET", "/v1/jobs/812")] = problem(404, "there is no job '812'")
    ran = run("show", "812", "-o", "json")
    assert ran.code == 3
    assert msgspec.json.decode(ran.err)["detail"] == "there is no job '812'"


def test_a_broken_connection_is_retried_with_the_same_key(gateway: GatewayStub, run: Run) -> None:
    """The answer to a submit was lost: it is sent again under the same key, so there is one job."""
    answers = iter([httpx.ReadError("gone"), None])

    def flaky(request: httpx.Request) -> tuple[int, object]:
        if (error := next(answers)) is not None:
            raise error
        return 201, SUBMITTED

    gateway.answers[("POST", "/v1/jobs")] = flaky
    assert run("submit", "--", "true").code == 0
    keys = [request.headers["Idempotency-Key"] for request in gateway.requests]
    assert len(keys) == 2
    assert keys[0] == keys[1]


def test_a_gateway_that_is_starting_is_waited_for(
    gateway: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 503 that promises an answer in a second is asked again; one without a promise is not."""
    busy = httpx.Response(503, headers={"Retry-After": "1"}, json={"type": "t", "title": "T", "status": 503})
    answers = iter([busy, httpx.Response(200, json=page())])
    monkeypatch.setattr(GatewayStub, "__call__", lambda self, request: next(answers))
    assert run("jobs").code == 0
    assert next(answers, None) is None


def test_cancel_goes_on_after_a_refusal(gateway: GatewayStub, run: Run) -> None:
    """One job that cannot be cancelled does not save the others; the exit code tells of it."""
    gateway.answers[("POST", "/v1/jobs/1:cancel")] = problem(409, "job 1 has ended")
    gateway.on("POST", "/v1/jobs/2:cancel", job_document("2"))
    ran = run("cancel", "1-2")
    assert (ran.code, ran.out, ran.err) == (5, "2 asked to end\n", "error: job 1 has ended\n")


def test_last_and_all_are_ones_own(gateway: GatewayStub, run: Run) -> None:
    """`last` is the caller's newest job even behind younger elements of an older array; `all` leaves out what has ended."""
    gateway.on(
        "GET", "/v1/jobs", page(job_document("3_1"), job_document("5"), ended("failed", job_id="4"), job_document("3"))
    )
    gateway.on("GET", "/v1/jobs/5", job_document("5"))
    assert run("show", "last", "-o", "name").out == "job/5\n"
    assert gateway.requests[0].url.params["user"] == "ada"
    for job in ("3", "5"):
        gateway.on("POST", f"/v1/jobs/{job}:hold", job_document(job))
    assert run("hold", "all").out == "3 held\n5 held\n"


def test_pages_are_joined(gateway: GatewayStub, run: Run) -> None:
    """A list longer than a page is read to its end."""
    pages = {None: page(job_document("2"), following="t"), "t": page(job_document("1"))}
    gateway.answers[("GET", "/v1/jobs")] = lambda request: (200, pages[request.url.params.get("continue")])
    assert run("jobs", "-o", "name").out == "job/2\njob/1\n"


def test_slurm_aliases_speak_slurm(gateway: GatewayStub, run: Run) -> None:
    """squeue's columns in squeue's order; sbatch's options and its line; scancel."""
    gateway.on("GET", "/v1/jobs", page(ended("succeeded", exit_code=0)))
    assert run("squeue").out.split()[:8] == [
        "JOBID",
        "PARTITION",
        "NAME",
        "USER",
        "ST",
        "TIME",
        "NODES",
        "NODELIST(REASON)",
    ]
    assert run("sacct").out.splitlines()[1].split()[-2:] == ["COMPLETED", "0:0"]
    gateway.on("POST", "/v1/jobs", SUBMITTED, 201)
    ran = run("sbatch", "--nodes=2", "--gres=gpu:8", "--wrap", "echo hi")
    assert (ran.code, ran.out) == (0, "Submitted batch job 812\n")
    body = gateway.bodies()[0]
    assert (body["nodes"], body["resources"], body["command"]) == (
        2,
        {"nvidia.com/gpu": 8},
        ["/bin/sh", "-c", "echo hi"],
    )


def test_sbatch_parsable_prints_the_id_alone(gateway: GatewayStub, run: Run) -> None:
    """`JOB=$(sbatch --parsable …)` is how scripts chain jobs."""
    gateway.on("POST", "/v1/jobs", SUBMITTED, 201)
    assert run("sbatch", "--parsable", "--wrap", "echo hi").out == "812\n"


def test_sbatch_submits_every_job_of_a_file(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """Two documents are two jobs, with the options on both, as under `submit -f`."""
    (tmp_path / "two.yaml").write_text("command: [a]\n---\ncommand: [b]\n")
    gateway.on("POST", "/v1/jobs", [SUBMITTED, {**SUBMITTED, "id": "813"}])
    ran = run("sbatch", "--nodes=2", str(tmp_path / "two.yaml"))
    assert (ran.code, ran.out) == (0, "Submitted batch job 812\nSubmitted batch job 813\n")
    assert [(job["command"], job["nodes"]) for job in gateway.bodies()[0]] == [(["a"], 2), (["b"], 2)]


@pytest.mark.parametrize("option", ["--test-only", "-Q", "--spread-job", "-W"])
def test_a_script_is_not_the_value_of_an_option_without_one(
    gateway: GatewayStub, run: Run, tmp_path: Path, option: str
) -> None:
    """The word after it is the script."""
    (tmp_path / "a.sh").write_text("#!/bin/sh\ntrue\n")
    gateway.on("POST", "/v1/jobs", SUBMITTED, 201)
    gateway.on("POST", "/v1/jobs:dryrun", trial_document())
    gateway.on("GET", "/v1/jobs/812", ended("succeeded", exit_code=0))
    ran = run("sbatch", option, str(tmp_path / "a.sh"), "--lr", "1")
    assert ran.code == 0
    asked = "/v1/jobs:dryrun" if option == "--test-only" else "/v1/jobs"
    assert gateway.requests[0].url.path == asked
    assert gateway.bodies()[0]["command"][-2:] == ["--lr", "1"]


def test_sinfo_shows_the_partitions_that_sbatch_takes(gateway: GatewayStub, run: Run) -> None:
    """They are the queues, each with all nodes; the one for jobs without a queue has the star."""
    gateway.on("GET", "/v1/nodes", page(node_document(), node_document(id="n2", state="lost")))
    gateway.on("GET", "/v1/queues", page(queue_document("research/vision"), queue_document("default")))
    assert run("sinfo").out == (
        "PARTITION        AVAIL  TIMELIMIT  NODES  STATE  NODELIST\n"
        "default*         up      infinite      1  down   n2\n"
        "default*         up      infinite      1  mix    n1\n"
        "research/vision  up      infinite      1  down   n2\n"
        "research/vision  up      infinite      1  mix    n1\n"
    )


def test_nodes_in_full_show_rack_inside_and_taints(gateway: GatewayStub, run: Run) -> None:
    """In the wide table only; a gateway that does not say them yet is understood."""
    node = node_document(labels={"fairlead/rack": "r7"})
    line = "18 NVLinks between all 8 GPUs, 2 NUMA nodes"
    gateway.on(
        "GET", "/v1/nodes", page({**node, "inside": line, "taints": ["team=vision:NoSchedule"]}, {**node, "id": "n2"})
    )
    head, first, second = run("nodes", "-o", "wide").out.splitlines()
    at = {name: head.index(name) for name in ("RACK", "INSIDE", "TAINTS", "JOBS")}
    assert first[at["INSIDE"] :].startswith(line)
    assert first[at["TAINTS"] :].startswith("team=vision:NoSchedule")
    assert (second[at["RACK"] : at["INSIDE"]].strip(), second[at["INSIDE"] : at["JOBS"]].split()) == (
        "r7",
        ["-", "-", "-"],
    )
    assert line not in run("nodes").out


def test_submit_wait_says_why_a_job_failed(gateway: GatewayStub, run: Run) -> None:
    """The exit code alone would leave a person guessing: the reason and where its output is, on stderr."""
    reason = {"code": "failed", "message": "ended with exit code 3 at noon"}
    gateway.on("POST", "/v1/jobs", SUBMITTED, 201)
    gateway.on("GET", "/v1/jobs/812", {**ended("failed", exit_code=3), "reason": reason})
    ran = run("submit", "--wait", "--", "false")
    assert (ran.code, ran.out) == (3, "812\n")
    assert ran.err == "job 812 ended with exit code 3 at noon; see: fairlead logs 812\n"


@pytest.mark.parametrize("words", [("submit", "-f", "none.yaml"), ("queues", "apply", "-f", "none.yaml")])
def test_a_file_that_is_not_there_is_a_usage_error(gateway: GatewayStub, run: Run, words: tuple[str, ...]) -> None:
    """Exit code 2 and the name, nothing sent."""
    ran = run(*words)
    assert (ran.code, ran.err, gateway.requests) == (2, "error: none.yaml: No such file or directory\n", [])


def test_cancel_all_of_nothing_says_so(gateway: GatewayStub, run: Run) -> None:
    """No open job is no error, but silence would look like success."""
    gateway.on("GET", "/v1/jobs", page())
    ran = run("cancel", "all")
    assert ran == (0, "", "none of your jobs is open; nothing asked to end\n")


def test_a_filter_that_finds_nothing_does_not_say_that_there_is_nothing(gateway: GatewayStub, run: Run) -> None:
    """`no jobs; try …` is for an empty cluster."""
    gateway.on("GET", "/v1/jobs", page())
    assert run("jobs", "--state", "running").out.startswith("no such jobs")
    assert run("jobs").out.startswith("no jobs; try:")


def test_sbatch_has_help(gateway: GatewayStub, run: Run) -> None:
    """`--help` before the script is ours; after it, the script's."""
    ran = run("sbatch", "--help")
    assert (ran.code, gateway.requests) == (0, [])
    assert "fairlead sbatch --nodes=2 --gres=gpu:8 train.sh" in ran.out


def test_sql_lists_its_tables_without_a_cluster(gateway: GatewayStub, run: Run) -> None:
    """The meaning of each column, from the schema itself; a forgotten query is refused with both alternatives."""
    ran = run("sql", "--tables")
    assert (ran.code, gateway.requests) == (0, [])
    assert "jobs: Every job" in ran.out and "exit_code" in ran.out
    assert (2, "fairlead sql --tables" in run("sql").err) == (run("sql").code, True)


def test_sql_from_stdin(gateway: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged; an empty one is refused before anything is sent."""
    gateway.on("POST", "/v1/sql", {"columns": [], "rows": [], "sequence": 7})
    for text, code in (("SELECT 1 -- größer\nAS one\n", 0), (" \n", 2)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert run("sql", "-").code == code
    (sent,) = gateway.requests
    assert msgspec.json.decode(sent.content)["query"] == "SELECT 1 -- größer\nAS one\n"


def test_sql_in_the_requested_format(gateway: GatewayStub, run: Run) -> None:
    """CSV as from the gateway, tables from its rows; a truncation is reported if it does not spoil the answer."""
    gateway.on(
        "POST",
        "/v1/sql",
        httpx.Response(
            200,
            content=b"x\n1\n",
            headers={"x-fairlead-truncated": "the first 1 rows of more", "x-fairlead-left-out": "uses"},
        ),
    )
    ran = run("sql", "-o", "csv", "-n", "1", "--timeout", "2s", "FROM t")
    assert (ran.code, ran.out, ran.err) == (0, "x\n1\n", "not all rows: the first 1 rows of more\nleft out: uses\n")
    sent = gateway.requests[-1]
    assert msgspec.json.decode(sent.content) == {"query": "FROM t", "limit": 1, "timeout_s": 2.0}
    assert sent.url.params["format"] == "csv"
    rows = {
        "columns": [{"name": "x", "type": "INTEGER"}],
        "rows": [[None], ["a"]],
        "sequence": 7,
        "truncated": True,
        "cut": "no room",
        "left_out": "samples before noon",
    }
    gateway.on("POST", "/v1/sql", rows)
    ran = run("sql", "FROM t")
    assert (ran.out, ran.err) == ("x\n-\na\n", "not all rows: no room\nleft out: samples before noon\n")
    assert msgspec.json.decode(run("sql", "-o", "json", "FROM t").out) == rows


def test_a_stopped_stack_is_not_replaced_by_an_unknown_one(
    run: Run, gateway: GatewayStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After `down`, commands for that data directory must not go to another server at the default port."""
    monkeypatch.delenv("FAIRLEAD_URL")
    monkeypatch.setenv("FAIRLEAD_DATA", str(tmp_path / "data"))
    found = run("cancel", "all")
    assert (found.code, gateway.requests) == (6, [])
    assert f"the stack of {tmp_path / 'data'} does not run" in found.err and "FAIRLEAD_URL" in found.err
    monkeypatch.delenv("FAIRLEAD_DATA")
    monkeypatch.chdir(tmp_path)
    gateway.on("GET", "/v1/jobs", page())
    assert run("jobs").code == 0
    assert gateway.requests


def test_a_job_is_submitted_held(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """By the option, by a script's own, and by sbatch's."""
    (tmp_path / "a.sh").write_text("#!/bin/sh\n#SBATCH --hold\ntrue\n")
    gateway.on("POST", "/v1/jobs", SUBMITTED, 201)
    for words in (
        ("submit", "--hold", "--", "true"),
        ("submit", str(tmp_path / "a.sh")),
        ("sbatch", "-H", "--wrap", "true"),
    ):
        assert run(*words).code == 0
    assert [body["held"] for body in gateway.bodies()] == [True, True, True]


def test_queues_are_held_drained_and_released(gateway: GatewayStub, run: Run) -> None:
    """One request and one line for each; a refusal names what is wrong, and the others are closed all the same."""
    for verb in ("hold", "drain", "release"):
        gateway.on("POST", f"/v1/queues/research/vision:{verb}", queue_document("research/vision"))
    assert run("queues", "hold", "research/vision", "--reason", "storage moves").out == "research/vision held\n"
    assert run("queues", "drain", "research/vision", "-o", "name").out == "queue/research/vision\n"
    assert run("queues", "release", "research/vision").out == "research/vision released\n"
    assert gateway.bodies() == [{"reason": "storage moves"}, {}, {}]
    gateway.on(
        "POST", "/v1/queues/nope:hold", {"type": "x", "title": "T", "status": 404, "detail": 'no queue "nope"'}, 404
    )
    refused = run("queues", "hold", "nope", "research/vision")
    assert (refused.code, refused.out) == (3, "research/vision held\n") and 'no queue "nope"' in refused.err


def test_closed_queues_are_shown(gateway: GatewayStub, run: Run) -> None:
    """In a column of their own, with the queue above that closes them; without any, there is no such column."""
    closed = {"by": "ann", "reason": "", "since": "2026-01-01T00:00:00.000Z"}
    rows = [queue_document("a", held=closed), queue_document("a/b", drained=closed), queue_document("c")]
    gateway.on("GET", "/v1/queues", page(*rows))
    lines = [line.split("  ") for line in run("queues").out.splitlines()]
    assert [line[-1].strip() for line in lines] == ["STATE", "held", "held by a, drained", "-"]
    gateway.on("GET", "/v1/queues", page(queue_document("c")))
    assert "STATE" not in run("queues").out


@pytest.mark.parametrize("verb", [("submit",), ("sbatch",)])
def test_a_script_that_requests_licences_is_not_started(
    gateway: GatewayStub, run: Run, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    """It is refused with the option to ignore it; with that option it is submitted, and the warning names the ignored
    directive."""
    (tmp_path / "a.sh").write_text("#!/bin/sh\n#SBATCH --licenses=a --nodes=2\ntrue\n")
    refused = run(*verb, str(tmp_path / "a.sh"))
    assert (refused.code, gateway.requests) == (2, [])
    assert "licenses: " in refused.err and "--ignore licenses" in refused.err
    gateway.on("POST", "/v1/jobs", SUBMITTED, 201)
    ran = run(*verb, "--ignore", "licenses", str(tmp_path / "a.sh"))
    assert ran.code == 0 and "licenses is IGNORED" in ran.err
    assert gateway.bodies()[0]["nodes"] == 2


def test_a_kubernetes_job_with_volumes_is_not_started_without_them(
    gateway: GatewayStub, run: Run, tmp_path: Path
) -> None:
    """It would fail, and be tried again, for want of what its file names."""
    (tmp_path / "job.yaml").write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: a, "
        "command: [x], envFrom: [{secretRef: {name: s}}]}], initContainers: [{name: i}]}}}\n"
    )
    refused = run("submit", "-f", str(tmp_path / "job.yaml"))
    assert (refused.code, gateway.requests) == (2, [])
    for name in ("containers[0].envFrom", "spec.template.spec.initContainers"):
        assert f"--ignore {name}" in refused.err


@pytest.mark.parametrize("verb", [*VERBS, *GROUPS], ids=lambda verb: verb.name)
def test_the_list_of_verbs_has_own_help_texts(verb: Verb) -> None:
    """`fairlead --help` prints what the verb's own help begins with, though it does not import the verb."""
    command = load(verb)
    assert (command.name, command.hidden) == (verb.name, False)
    assert (command.help or "").split("\n\n")[0].split() == verb.help.split()


@pytest.mark.parametrize("verb", ALIASES, ids=lambda verb: verb.name)
def test_aliases_are_hidden(verb: Verb) -> None:
    """Users of Slurm type them from memory; the list of verbs does not have each thing twice."""
    assert load(verb).hidden


def test_the_version_is_printed_with_that_of_the_gateway(gateway: GatewayStub, run: Run) -> None:
    """The gateway's where it answers: an old one, or none, is no mistake."""
    own = f"fairlead {version('fairlead-cluster')}\n"
    assert run("--version") == (0, own, "")
    gateway.on("GET", "/version", {"version": "9.8.7", "api": "v1", "sequence": 4})
    assert run("--version") == (0, own + "gateway 9.8.7 (API v1) at http://gateway.test\n", "")
    assert run("--url", "http://other.test", "--version").out.endswith("(API v1) at http://other.test\n")


def test_verbs_take_their_client_from_one_place() -> None:
    """`options.connect` chooses the context, the address and the sign-in. Others make one for the local stack, or to sign out of a context."""
    folder = Path(options.__file__).parent
    made = {path.stem for path in folder.glob("*.py") if re.search(r"(?<!Moment)\bClient\(", path.read_text())}
    assert made == {"doctor", "sign_in", "stack"}
