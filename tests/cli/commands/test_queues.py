"""Queues at the command line: the tree as a table, queue files sent, previewed and printed, queues deleted, jobs moved."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from fairlead.commands.queues import check, read
from fairlead.render import queue_tables
from fairlead_schemas.http.api import ConcernedJob, Queue, QueueFilePreview
from fairlead_schemas.queuefile.parse import read_queue_file
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, applied, job_document, page, problem, queue_document

GPU = "nvidia.com/gpu"
RESEARCH = queue_document(
    "research", guaranteed={"gpu": 16_000, "cpu": 256_000}, maximum={"gpu": 64_000, "memory": 2**21}, waiting=3, running=2,
    charged={"gpu": 28_000}, used={"gpu": 20_000, "cpu": 40_500, "memory": 2**20}, borrowed={"gpu": 4000, "cpu": 0}, preempted=1,
    settings={"guaranteed": {GPU: 16, "cpu": 256}, "maximum": {GPU: 64, "memory": "2Ti"}, "weight": 2},
    budget={"gpu_hours": 1000.0, "period": "month", "spent_gpu_hours": 800.0, "percent_reached": 80},
    share={"fair_share_gpu_milli": 24_000, "kept": {"gpu": 2000, "cpu": 16_000}, "past_use": {"gpu": 3500}, "spent_gpu_hours": 842.125, "spent_percent": 84.2},
)  # fmt: skip
VISION = queue_document(
    "research/vision",
    guaranteed={"gpu": 8000, "gpu:L4": 8000},
    used={"gpu": 20_000, "gpu:L4": 4000},
    charged={"gpu": 20_000},
    borrowed={"gpu": 12_000},
    running=2,
    users={"ada": {"gpu": 12_000}, "bob": {"gpu": 8000}},
    settings={"guaranteed": {GPU: 8, f"{GPU}:L4": 8}, "users": {"default": {GPU: 16}}},
)
OTHER = queue_document("other/deep")
POOLS = page(
    {"name": "default", "settings": {"sequencer": "drf"}, "queues": [], "nodes": 4, "gpus": 32, "sequence": 40}
)


@pytest.fixture
def queues(gateway: GatewayStub) -> GatewayStub:
    """Three queues, not in order, one without its parent, and the default pool."""
    gateway.on("GET", "/v1/queues", page(VISION, RESEARCH, OTHER))
    gateway.on("GET", "/v1/pools", POOLS)
    return gateway


def file_of(tmp_path: Path, text: str) -> str:
    """A file on disk."""
    (tmp_path / "queues.yaml").write_text(text)
    return str(tmp_path / "queues.yaml")


def test_the_table_is_a_tree(queues: GatewayStub, run: Run) -> None:
    """Parents first, children indented; a queue whose parent is not there has its whole path."""
    assert run("queues").out == (
        "QUEUE       GUARANTEED  USED  MAX  BORROWED  WAITING  RUNNING    SPENT  % OF BUDGET\n"
        "other/deep           -     0    -         -        0        0        -            -\n"
        "research            16    20   64         4        3        2  842.125         84.2\n"
        "  vision             8    20    -        12        0        2        -            -\n"
    )
    assert run("queues", "-o", "name").out == "queue/other/deep\nqueue/research\nqueue/research/vision\n"
    assert [q["path"] for q in msgspec.json.decode(run("queues", "-o", "json").out)["items"]] == [
        "other/deep",
        "research",
        "research/vision",
    ]


def test_wide_has_all_resources(queues: GatewayStub, run: Run) -> None:
    """CPUs, memory, models, users, budgets, and the whole path."""
    rows = [line.split("  ") for line in run("queues", "-o", "wide").out.splitlines()]
    heads, *cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert heads[7:] == [
        "SPENT",
        "% OF BUDGET",
        "SHARE",
        "PAST USE",
        "KEPT",
        "OFFERED",
        "POOL",
        "WEIGHT",
        "PRIORITY",
        "CPUS",
        "MEMORY",
        "MODELS",
        "USERS",
        "BUDGET",
        "YIELDED",
        "ROLES",
        "PATH",
    ]
    assert cells[1][7:] == [
        "842.125",
        "84.2",
        "24",
        "3.500",
        "2 GPUs, 16 CPUs",
        "8",
        "default",
        "2",
        "0",
        "40.500",
        "1Ti/2Ti",
        "-",
        "-",
        "1000 GPU-hours a month, 80 % used",
        "1",
        "-",
        "research",
    ]
    assert cells[2][17:20] == ["0Mi", "L4 4/8", "ada 12/16, bob 8/16, default 0/16"]


def test_csv_has_every_column(queues: GatewayStub, run: Run) -> None:
    """Under the heads of the wide table; shares are asked for, and their absence is said."""
    lines = run("queues", "-o", "csv").out.split("\r\n")
    assert lines[0].startswith(
        "QUEUE,GUARANTEED,USED,MAX,BORROWED,WAITING,RUNNING,SPENT,% OF BUDGET,SHARE,PAST USE,KEPT,"
    )
    assert lines[2].startswith('research,16,20,64,4,3,2,842.125,84.2,24,3.500,"2 GPUs, 16 CPUs",8,')
    assert queues.requests[-1].url.params["shares"] == "true"
    queues.on("GET", "/v1/queues", page(OTHER))
    assert "the explainer does not answer" in run("queues", "-o", "csv").err


def test_yaml_is_a_queue_file(queues: GatewayStub, run: Run) -> None:
    """It reads as one, and says what is configured: previewing it finds nothing to change."""
    text = run("queues", "-o", "yaml").out
    assert yaml.safe_load(text) == {
        "pools": {"default": {"sequencer": "drf"}},
        "queues": {"other/deep": {}, "research": {**RESEARCH["settings"], "queues": {"vision": VISION["settings"]}}},
    }
    there = {queue["path"]: queue["settings"] for queue in (RESEARCH, VISION, OTHER)}
    file = check(read(text, "queues.yaml"))
    assert queue_tables.changes(file, {"default": {"sequencer": "drf"}}, there, prune=True) == ([], 4)


def test_a_bar_shows_guarantee_use_and_maximum() -> None:
    """Scaled to the largest queue; every part that is not nothing has a sign."""

    def drawn(queue: dict[str, Any], width: int = 32) -> str:
        return queue_tables.bar(msgspec.convert(queue, Queue), width, 64_000)

    assert drawn(RESEARCH) == f"[{'#' * 8}{'+' * 2}{'.' * 22}]"
    assert drawn(VISION) == f"[{'#' * 4}{'+' * 6}]"
    assert drawn({**RESEARCH, "used": {"gpu": 4000}}) == f"[{'#' * 2}{'-' * 6}{'.' * 24}]"
    assert drawn(OTHER) == ""


def test_a_wide_terminal_gets_bars(queues: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow one and a pipe do not."""
    monkeypatch.setattr("fairlead.render.terminal.is_terminal", lambda stream=None: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    ran = run("queues")
    assert "[########" in ran.out.splitlines()[2] and "# used" in ran.err
    monkeypatch.setenv("COLUMNS", "80")
    assert "[" not in run("queues").out


def test_apply_sends_the_file_and_shows_what_became_of_it(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """As it was written; flags become the query; the counts are a remark."""
    gateway.on("POST", "/v1/queues:apply", applied(RESEARCH | {"share": None}, VISION))
    text = "queues:\n  research:\n    guaranteed: {nvidia.com/gpu: 16, cpu: 0.5}\n    queues: {vision: }\n"
    ran = run("queues", "apply", "-f", file_of(tmp_path, text), "--prune", "--reclaim")
    assert (ran.code, ran.err) == (0, "2 configured, 0 removed, 1 as before\n")
    assert ran.out.splitlines()[1:] == [
        "research          16    20   64         4        3        2",
        "  vision           8    20    -        12        0        2",
    ]
    assert gateway.bodies() == [
        {"queues": {"research": {"guaranteed": {GPU: 16, "cpu": "0.5"}, "queues": {"vision": None}}}}
    ]
    assert dict(gateway.requests[0].url.params) == {"prune": "true", "reclaim": "true"}
    assert gateway.requests[0].headers["Idempotency-Key"]


def test_apply_may_ask_that_nothing_has_changed_since(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """By the sequence that the file was printed with; a change meanwhile is a conflict that says what to do."""
    gateway.on("GET", "/v1/queues", page(RESEARCH))
    gateway.on("GET", "/v1/pools", page())
    assert "as of sequence 40; apply --if-match 40" in run("queues", "-o", "yaml").err
    told = "queues.a has changed at sequence 41, after 40"
    gateway.answers[("POST", "/v1/queues:apply")] = problem(412, told, hint="GET /v1/queues")
    ran = run("queues", "apply", "-f", file_of(tmp_path, "queues: {a: {}}"), "--if-match", "40")
    assert (ran.code, gateway.requests[-1].headers["If-Match"]) == (5, 'W/"40"')
    assert told in ran.err


def test_a_file_with_mistakes_is_refused_here(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """All of them with their paths, and nothing is sent."""
    ran = run("queues", "apply", "-f", file_of(tmp_path, "queues: {a: {weight: 0, maximum: {gpu: 1}}, B: {}}"))
    assert (ran.code, gateway.requests) == (2, [])
    lines = ran.err.splitlines()
    assert lines[0] == "error: the queue file is not valid; nothing was sent"
    assert [line.split(": ")[1] for line in lines[1:]] == ["queues.a.maximum.gpu", "queues.a.weight", "queues.B"]
    twice = run("queues", "apply", "-f", file_of(tmp_path, "queues: {a: {}, a: {}}"))
    assert (twice.code, 'YAML or JSON: line 1, column 17: the field "a" is given twice\n' in twice.err) == (2, True)
    empty = run("queues", "apply", "-f", file_of(tmp_path, "# nothing\n"))
    assert (empty.code, "expected a queue file, found nothing" in empty.err) == (2, True)
    assert run("queues", "apply", "-f", file_of(tmp_path, "a: 1\n---\nb: 2\n")).code == 2
    assert run("queues", "apply", "-f", str(tmp_path / "none.yaml")).code == 2


def test_refusals_of_the_cluster_are_printed_line_by_line(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """Each mistake at its path."""
    errors = [{"field": "queues.a", "message": "there is no b"}, {"field": "pools.p", "message": "has queues"}]
    gateway.answers[("POST", "/v1/queues:apply")] = problem(422, "2 mistakes; nothing was changed", errors=errors)
    ran = run("queues", "apply", "-f", file_of(tmp_path, "queues: {a: {}}"))
    assert (ran.code, ran.err) == (
        2,
        "error: 2 mistakes; nothing was changed\n  queues.a: there is no b\n  pools.p: has queues\n",
    )


def test_a_preview_sends_nothing(queues: GatewayStub, run: Run, tmp_path: Path) -> None:
    """New, changed, removed and unchanged; another spelling of the same is no change."""
    text = """
        pools: {a100: {patience: 10m}}
        queues:
          research: {guaranteed: {nvidia.com/gpu: 8, cpu: "256.000"}, maximum: {nvidia.com/gpu: 64, memory: 2048Gi}, weight: 2}
          research/vision: {guaranteed: {nvidia.com/gpu: 8, "nvidia.com/gpu:L4": 8}, users: {default: {nvidia.com/gpu: 16}}}
          research/speech: {weight: 3}
    """
    ran = run("queues", "apply", "-f", file_of(tmp_path, text), "--dry-run", "--prune")
    assert ran.code == 0
    assert ran.out == (
        "+ pool a100\n    patience: 10m\n    sequencer: drf\n"
        "- queue other/deep\n"
        "~ queue research\n    guaranteed.nvidia.com/gpu: 16 -> 8\n"
        "+ queue research/speech\n    weight: 3\n"
        "= 1 as it is\n"
    )
    assert ran.err.startswith("nothing was changed; whether")  # a gateway that cannot tell whom it would concern
    assert {request.url.path for request in queues.requests if request.method != "GET"} == {"/v1/queues:dryrun"}
    without = run("queues", "apply", "-f", file_of(tmp_path, text), "--dry-run", "-o", "name").out
    assert without == "pool/a100\nqueue/research\nqueue/research/speech\n"
    found = msgspec.json.decode(run("queues", "apply", "-f", file_of(tmp_path, text), "--dry-run", "-o", "json").out)
    assert found[1] == {"what": "change", "kind": "queue", "name": "research", "fields": {f"guaranteed.{GPU}": [16, 8]}}


def test_queues_above_a_named_one_are_made_and_stay() -> None:
    """As the queue service does it, whatever is pruned; and the default pool is never taken away."""
    file = read_queue_file({"queues": {"a/b/c": {}, "d/e": {"weight": 2}}})
    there = {"a": {"weight": 3}, "d": {}, "d/e": {"weight": 2}, "x": {}}
    found, unchanged = queue_tables.changes(file, {"default": {}, "p": {}}, there, prune=True)
    assert queue_tables.change_lines(found, unchanged) == (
        "- pool p\n+ queue a/b\n+ queue a/b/c\n- queue x\n= 1 as it is\n"
    )


def test_a_removed_field_is_shown_as_not_set() -> None:
    """A field that the file leaves out is at its default again."""
    file = read_queue_file({"queues": {"a": {"maximum": {GPU: 8}}}})
    found, unchanged = queue_tables.changes(file, {}, {"a": {"weight": 2}}, prune=False)
    assert (
        queue_tables.change_lines(found, unchanged)
        == "~ queue a\n    maximum.nvidia.com/gpu: not set -> 8\n    weight: 2 -> not set\n"
    )


def test_a_queue_is_deleted(gateway: GatewayStub, run: Run) -> None:
    """With where its jobs go."""
    gateway.on("DELETE", "/v1/queues/research/old", {"path": "research/old", "removed": True, "sequence": 41})
    ran = run("queues", "delete", "research/old", "--move-to", "research/vision")
    assert (ran.code, ran.out) == (0, "research/old deleted\n")
    assert dict(gateway.requests[0].url.params) == {"moveTo": "research/vision"}
    unknown = {"type": "urn:fairlead:problem:unknown_queue", "hint": "GET /v1/queues lists them"}
    gateway.answers[("DELETE", "/v1/queues/b")] = problem(404, "there is no queue 'b'", **unknown)
    assert "hint: `fairlead queues` lists them" in run("queues", "delete", "b").err, "in words that can be typed"
    gateway.answers[("DELETE", "/v1/queues/a")] = problem(409, "queue a has 3 jobs that wait; say where they go")
    assert run("queues", "delete", "a").code == 5


def test_jobs_are_moved(gateway: GatewayStub, run: Run) -> None:
    """One after the other; a refusal of one does not keep the others."""
    gateway.on("POST", "/v1/jobs/1:move", job_document("1"))
    gateway.answers[("POST", "/v1/jobs/2:move")] = problem(409, "job 2 runs")
    gateway.on("POST", "/v1/jobs/3:move", job_document("3"))
    ran = run("move", "1-3", "--queue", "research/vision")
    assert (ran.code, ran.out, ran.err) == (
        5,
        "1 moved to research/vision\n3 moved to research/vision\n",
        "error: job 2 runs\n",
    )
    assert gateway.bodies()[0] == {"queue": "research/vision"}
    assert run("move", "1").code == 2


def test_submit_takes_slices_deadlines_and_dependencies(gateway: GatewayStub, run: Run) -> None:
    """Each flag becomes its words of a job file; `last` is the newest job of one's own."""
    gateway.on("POST", "/v1/jobs", {"id": "812", "state": "scheduled", "sequence": 41}, 201)
    gateway.on("GET", "/v1/jobs", page(job_document("811")))
    ran = run(
        "submit",
        "--slice",
        "1h",
        "--time",
        "7d",
        "--deadline",
        "2027-01-31T10:00:00+01:00",
        "--after",
        "12",
        "--after",
        "last:ended",
        "--array",
        "0-9%2",
        "--workdir",
        "/d",
        "--",
        "true",
    )
    assert ran.code == 0, ran.err
    assert gateway.bodies() == [
        {
            "command": ["true"],
            "time": {"total": "7d", "slice": "1h"},
            "deadline": "2027-01-31T10:00:00+01:00",
            "dependsOn": ["12", {"job": "811", "state": "ended"}],
            "array": "0-9%2",
            "workdir": "/d",
        }
    ]
    for words in (("--after", "12:soon"), ("--after", "1-3"), ("--deadline", "tomorrow"), ("--slice", "long")):
        refused = run("submit", *words, "--", "true")
        assert (refused.code, len(gateway.bodies())) == (2, 1), words


def test_a_deadline_may_be_a_duration_from_now(gateway: GatewayStub, run: Run) -> None:
    """The job file has the time."""
    gateway.on("POST", "/v1/jobs", {"id": "812", "state": "queued", "sequence": 41}, 201)
    assert run("submit", "--deadline", "8h", "--", "true").code == 0
    deadline = gateway.bodies()[0]["deadline"]
    assert (len(deadline), deadline[-1]) == (len("2027-01-31T10:00:00Z"), "Z")


def test_show_prints_time_used_and_the_beneficiary_of_a_preemption(gateway: GatewayStub, run: Run) -> None:
    """One line for each known fact, none for unknown ones."""
    document = job_document(
        nodes=[],
        gpus={},
        used_seconds=5400,
        left_seconds=1800,
        slice_seconds=3600,
        preempted=2,
        deadline="2027-01-31T09:00:00.000Z",
        deadline_missed=True,
        after=[{"job": "12", "state": "succeeded"}],
        preempted_for={"job": "811", "rule": "over_slice"},
        saved_at="2027-01-30T09:00:00.000Z",
        saved_note="step=7",
        lost_seconds=90,
    )
    gateway.on("GET", "/v1/jobs/812", document)
    lines = [line.split(maxsplit=1) for line in run("show", "812").out.splitlines() if line.strip()]
    told = {" ".join(words)[:60] for words in lines}
    assert {
        "time used 1h 30m, 30m left",
        "slice 1h",
        "deadline 2027-01-31T09:00:00.000Z (missed)",
        "after job 12 succeeded",
        "yielded 2 times, last to job 811 (over slice)",
        "saved 2027-01-30T09:00:00.000Z (step=7)",
        "lost 1m 30s",
    } <= {" ".join(word.split()) for word in told}
    gateway.on("GET", "/v1/jobs/812", job_document(nodes=[], gpus={}))
    plain = run("show", "812").out
    assert not any(
        line.startswith(("time used", "slice", "deadline", "after", "yielded", "saved", "lost"))
        for line in plain.splitlines()
    )


def test_a_preview_names_the_jobs_that_a_change_concerns() -> None:
    """A line for each kind, five jobs by name; the same words with and without `--reclaim`, as far as they are true."""

    def jobs(count: int) -> list[ConcernedJob]:
        return [ConcernedJob(id=str(i), name="n", user="ada", queue="q", gpu_milli=2000) for i in range(count)]

    def told(*counts: int, hidden: int = 0, reclaim: bool = False) -> list[str]:
        yields, withdrawn, offered = map(jobs, counts)
        tried = QueueFilePreview(
            configured=1,
            removed=0,
            unchanged=0,
            yields=yields,
            withdrawn=withdrawn,
            offered=offered,
            hidden=hidden,
            sequence=7,
        )
        return queue_tables.concerned_lines(tried, reclaim=reclaim)

    last = "nothing was changed; the queue service would not refuse it now"
    assert told(0, 0, 0) == [last]
    one = "1 job (0 of ada in q, 2 GPUs)"
    assert told(1, 1, 1, hidden=2, reclaim=True) == [
        f"{one} would be asked to yield",
        f"{one} would be without the offer that it has",
        f"{one} would be offered next",
        "and 2 that you may not see",
        last,
    ]
    assert told(1, 0, 0)[0] == f"{one} would go on; with --reclaim, it would be asked to yield"
    assert told(7, 0, 0)[0].startswith("7 jobs (0 of ada") and "4 of ada in q, 2 GPUs and 2 more)" in told(7, 0, 0)[0]
    assert told(7, 0, 0)[0].endswith("with --reclaim, they would be asked to yield")
