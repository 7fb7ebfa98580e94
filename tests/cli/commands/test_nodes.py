"""Verbs on nodes and what is planned for them, against a stub gateway: what they ask and print."""

from typing import Any

import msgspec
import pytest

from tests.cli import mapped
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, node_document, page, problem, queue_document

NODE = {"id": "n1", "sequence": 41}
ROLLOUT = {
    "name": "driver",
    "state": "running",
    "nodes": {"draining": ["n1"], "waiting": ["n2", "n3"]},
    "budget_gpus": 16,
    "gpus_away": 8,
    "nodes_max": 0,
    "want": ["driver=580"],
    "deadline_seconds": 0,
    "stop_long": False,
    "started_at": "2026-01-01T00:00:00.000Z",
    "by": "ops",
    "reason": "CVE",
    "sequence": 41,
}
WINDOW = {
    "name": "cooling",
    "state": "scheduled",
    "nodes": ["n1", "n2"],
    "starts_at": "2026-01-31T08:00:00.000Z",
    "ends_at": "2026-01-31T12:00:00.000Z",
    "notice_seconds": 0,
    "by": "ops",
    "reason": "pump",
    "sequence": 41,
}


@pytest.mark.parametrize(
    ("words", "verb", "body", "told"),
    [
        (
            ("taint", "n1", "a=b:NoSchedule", "--reason", "x"),
            "taint",
            {"taint": "a=b:NoSchedule", "reason": "x"},
            "tainted",
        ),
        (("untaint", "n1", "a"), "untaint", {"taint": "a"}, "untainted"),
        (("quarantine", "n1", "--reason", "smells"), "quarantine", {"reason": "smells"}, "in quarantine"),
        (("unquarantine", "n1"), "unquarantine", {}, "released"),
        (("restore", "n1", "GPU-a"), "restore", {"gpu": "GPU-a"}, "uses GPU-a again"),
    ],
)
def test_a_verb_on_a_node_is_one_request(
    gateway: GatewayStub, run: Run, words: tuple[str, ...], verb: str, body: dict[str, str], told: str
) -> None:
    """Its options are the body; it says what was done."""
    gateway.on("POST", f"/v1/nodes/n1:{verb}", NODE)
    ran = run(*words)
    assert (ran.code, ran.out, ran.err) == (0, f"n1 {told}\n", "")
    assert gateway.bodies() == [body]
    assert run(*words, "-o", "name").out == "node/n1\n"


def test_a_refused_verb_says_why(gateway: GatewayStub, run: Run) -> None:
    """The gateway's sentence; nothing on stdout."""
    gateway.answers[("POST", "/v1/nodes/n1:unquarantine")] = problem(409, "n1 is neither")
    ran = run("unquarantine", "n1")
    assert ran.code != 0 and ran.out == "" and "n1 is neither" in ran.err


@pytest.mark.parametrize(
    ("words", "verb", "done"),
    [
        (("cordon", "n1", "n2", "n3", "--reason", "fan"), "cordon", "cordoned"),
        (("uncordon", "n1", "n2", "n3"), "uncordon", "takes work again"),
        (("drain", "n1", "n2", "n3", "--deadline", "5m"), "drain", "draining"),
        (("taint", "n1", "n2", "n3", "a=b:NoSchedule"), "taint", "tainted"),
        (("untaint", "n1", "n2", "n3", "a"), "untaint", "untainted"),
        (("quarantine", "n1", "n2", "n3"), "quarantine", "in quarantine"),
        (("unquarantine", "n1", "n2", "n3"), "unquarantine", "released"),
        (("declare-dead", "n1", "n2", "n3"), "declare-dead", "declared dead"),
        (("nodes", "remove", "n1", "n2", "n3"), "remove", "removed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_verb_takes_several_nodes(
    gateway: GatewayStub, run: Run, words: tuple[str, ...], verb: str, done: str
) -> None:
    """One request and one line for each. A refused node hides no other, and makes the exit code 1."""
    for node in ("n1", "n3"):
        gateway.on("POST", f"/v1/nodes/{node}:{verb}", {"id": node, "sequence": 41})
    gateway.answers[("POST", f"/v1/nodes/n2:{verb}")] = problem(409, "it is\nbusy")
    ran = run(*words)
    assert (ran.code, ran.out, ran.err) == (1, f"n1 {done}\nn3 {done}\n", "error: n2: it is busy\n")
    assert [request.url.path for request in gateway.requests] == [f"/v1/nodes/{n}:{verb}" for n in ("n1", "n2", "n3")]
    assert len({str(body) for body in gateway.bodies()}) == 1
    gateway.on("POST", f"/v1/nodes/n2:{verb}", {"id": "n2", "sequence": 41})
    ran = run(*words, "-o", "name")
    assert (ran.code, ran.out, ran.err) == (0, "node/n1\nnode/n2\nnode/n3\n", "")
    answers = [{"id": node, "sequence": 41} for node in ("n1", "n2", "n3")]
    assert msgspec.json.decode(run(*words, "-o", "json").out) == answers


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ("ready", "n1 takes work again"),
        ("quarantined", "n1 is uncordoned but still quarantined, so it takes no work: fairlead unquarantine n1"),
        ("lost", "n1 is uncordoned but lost: it takes work when its agent reports again"),
    ],
)
def test_uncordon_says_if_something_else_keeps_the_node_from_work(
    gateway: GatewayStub, run: Run, state: str, line: str
) -> None:
    """An uncordon ends a cordon or drain only."""
    gateway.on("POST", "/v1/nodes/n1:uncordon", {"id": "n1", "state": state, "sequence": 41})
    assert run("uncordon", "n1").out == line + "\n"


def test_a_rollout_is_started_with_the_given_options_only(gateway: GatewayStub, run: Run) -> None:
    """Labels as a map, durations as typed; a label without a value is refused here."""
    gateway.on("POST", "/v1/rollouts", ROLLOUT)
    ran = run("rollout", "start", "driver", "--all", "--budget-gpus", "16", "--want", "driver=580", "--deadline", "1h")
    assert (ran.code, ran.out) == (0, "driver started\n")
    assert gateway.bodies() == [
        {"name": "driver", "all": True, "budgetGpus": 16, "want": {"driver": "580"}, "deadline": "1h"}
    ]
    assert "expected key=value" in run("rollout", "start", "x", "--budget-gpus", "1", "-l", "row").err


def test_rollouts_are_listed_and_one_is_shown(gateway: GatewayStub, run: Run) -> None:
    """The number of nodes in each state, then their names."""
    gateway.on("GET", "/v1/rollouts", page(ROLLOUT))
    gateway.on("GET", "/v1/rollouts/driver", ROLLOUT)
    table = run("rollout").out.splitlines()
    assert dict(gateway.requests[-1].url.params) == {"limit": "1000"}
    assert table[1].split()[:9] == ["driver", "running", "3", "2", "1", "0", "0", "0", "8/16"]
    shown = run("rollout", "show", "driver").out
    assert "n2, n3" in shown and "8 of at most 16" in shown


@pytest.mark.parametrize(
    ("words", "verb", "body"),
    [
        (("pause", "driver", "--reason", "lunch"), "pause", {"reason": "lunch"}),
        (("resume", "driver"), "resume", {}),
        (("cancel", "driver"), "cancel", {}),
        (("done", "driver", "n1"), "done", {"node": "n1"}),
    ],
)
def test_a_verb_on_a_rollout_is_one_request(
    gateway: GatewayStub, run: Run, words: tuple[str, ...], verb: str, body: dict[str, str]
) -> None:
    """The same for rollouts."""
    gateway.on("POST", f"/v1/rollouts/driver:{verb}", ROLLOUT)
    assert run("rollout", *words).code == 0
    assert gateway.bodies() == [body]


def test_windows_are_scheduled_listed_and_cancelled(gateway: GatewayStub, run: Run) -> None:
    """Several nodes by name."""
    gateway.on("POST", "/v1/maintenance", WINDOW)
    gateway.on("GET", "/v1/maintenance", page(WINDOW))
    gateway.on("POST", "/v1/maintenance/cooling:cancel", {"name": "cooling"})
    words = ("--node", "n1", "--node", "n2", "--starts", "2026-01-31T08:00:00Z", "--for", "4h", "--reason", "pump")
    assert run("maintenance", "schedule", "cooling", *words).out == "cooling scheduled\n"
    assert gateway.bodies() == [
        {"name": "cooling", "nodes": ["n1", "n2"], "starts": "2026-01-31T08:00:00Z", "duration": "4h", "reason": "pump"}
    ]
    assert run("maintenance", "-o", "name").out == "maintenance/cooling\n"
    assert run("maintenance", "cancel", "cooling").out == "cooling cancelled\n"


def test_the_breaker_says_what_has_tripped_it(gateway: GatewayStub, run: Run) -> None:
    """And that nothing has."""
    gateway.on("GET", "/v1/breaker", {"tripped": [], "sequence": 41})
    assert run("breaker").out == "not tripped\n"
    tripped = {"kind": "loss", "found": 11, "allowed": 10, "of": 64, "at": "2026-01-01T00:00:00.000Z"}
    gateway.on("GET", "/v1/breaker", {"tripped": [tripped], "sequence": 41})
    assert "by loss: 11 of 64 nodes, 10 allowed\n" in run("breaker").out
    gateway.on("POST", "/v1/breaker:reset", {"tripped": [], "sequence": 42})
    assert run("breaker", "reset").out == "breaker reset\n"


def test_a_node_is_described_with_what_is_not_well(gateway: GatewayStub, run: Run) -> None:
    """Its state and why, each ailment with evidence and since when, and what gives it back."""
    ailment = {
        "gpu": "GPU-a",
        "code": "xid79",
        "severity": "node",
        "words": "XID 79, GPU has fallen off the bus",
        "evidence": "NVRM: Xid 79",
        "since": "2026-01-01T00:00:00.000Z",
        "returns": "a boot",
    }
    node = {
        "id": "n1", "state": "quarantined", "reason": "3 different jobs failed fast", "runtime": "process", "simulated": True,
        "address": "10.0.0.1", "hostname": "n1", "gpu_model": "A100", "gpus": 8, "gpus_free": 7, "cpu_milli": 8000,
        "cpu_milli_free": 8000, "memory_mib": 1024, "memory_mib_free": 1024, "labels": {"fairlead/rack": "r1", "fairlead/gpu-injection": "cdi"}, "jobs": [], "sequence": 4,
        "blamed_by": ["1", "2", "3"], "health": [ailment],
    }  # fmt: skip
    gateway.on("GET", "/v1/nodes/n1", node)
    out = run("nodes", "describe", "n1").out
    for told in (
        "3 different jobs failed fast",
        "1, 2, 3",
        "fairlead unquarantine n1",
        "GPU-a: xid79, since 2026",
        "NVRM: Xid 79",
        "the node gets no new work",
        "a boot",
        "fairlead restore n1 GPU-a",
        "\nlabels\n  fairlead/gpu-injection=cdi\n  fairlead/rack=r1\n",
    ):
        assert told in out
    assert '"code": "xid79"' in run("nodes", "describe", "n1", "-o", "json").out
    gateway.on("POST", "/v1/nodes/n1:remove", {"id": "n1", "sequence": 5})
    assert run("nodes", "remove", "n1", "--reason", "sold").out == "n1 removed\n"
    assert gateway.bodies()[-1] == {"reason": "sold"}
    misplaced = run("nodes", "--reason", "sold")
    assert misplaced.code != 0 and "--reason is of remove" in misplaced.err
    refused = run("nodes", "n1")
    assert refused.code != 0 and 'expected "describe NODE"' in refused.err
    assert "hint: fairlead drain n1 n2" in run("nodes", "drain", "n1", "n2").err, "verbs of nodes stand alone"


def sick(name: str, **changes: Any) -> dict[str, Any]:
    """A node of four GPUs as the API gives it: one held, one faulted, two closed by the taint that the fault has set."""
    document: dict[str, Any] = {
        "id": name, "state": "ready", "reason": "", "runtime": "docker", "simulated": False, "address": "10.0.0.1", "hostname": name,
        "gpu_model": "A100", "gpus": 4, "gpus_free": 0, "cpu_milli": 8000, "cpu_milli_free": 0, "memory_mib": 1, "memory_mib_free": 0,
        "labels": {}, "jobs": ["7"], "sequence": 40, "gpu_states": {"held": 1, "unhealthy": 1, "closed": 2},
        "taints": ["fairlead/unhealthy=xid79:NoSchedule"], "faulted": {"GPU-b": "xid79"},
    }  # fmt: skip
    return {**document, **changes}


def test_one_line_has_all_that_keeps_work_from_a_node(gateway: GatewayStub, run: Run) -> None:
    """Silence, faults, taints and the reason of its state; nothing of a node that is well."""
    well = {"gpus_free": 4, "gpu_states": {"free": 4}, "taints": [], "faulted": {}, "jobs": []}
    gateway.on(
        "GET",
        "/v1/nodes",
        page(sick("n1"), sick("n2", **well), sick("n3", state="silent", silent_seconds=90, reason="fan", taints=[])),
    )
    found = run("nodes").out.splitlines()
    assert found[0].split()[-1] == "NOTES"
    assert found[1].endswith("docker   1 GPU faulted (xid79); taint fairlead/unhealthy=xid79:NoSchedule")
    assert found[2].split()[:5] == ["n2", "ready", "A100", "4", "4"] and found[2].endswith("docker   -")
    assert found[3].startswith("n3    silent") and found[3].endswith("silent for 90 s; 1 GPU faulted (xid79); fan")
    gateway.on("GET", "/v1/jobs", page())
    bars = run("top", "--once").out
    assert "12 GPUs  4 free" in bars
    assert "[#*--] 1/4  7  1 GPU faulted (xid79); taint" in bars
    assert "[....] 0/4\n" in bars


def test_a_tripped_breaker_is_a_footer(gateway: GatewayStub, run: Run) -> None:
    """For people only: `-o json` is the list as it is."""
    gateway.on("GET", "/v1/nodes", page(sick("n1")))
    assert "breaker" not in run("nodes").out
    tripped = {"kind": "nodes", "found": 3, "allowed": 1, "of": 5, "at": "2026-01-01T00:00:00.000Z"}
    gateway.on("GET", "/v1/breaker", {"tripped": [tripped], "sequence": 40})
    footer = run("nodes").out.splitlines()[-1]
    assert footer.startswith("the breaker has tripped: 3 of 5 nodes (nodes);") and "fairlead breaker reset" in footer
    assert "breaker" not in run("nodes", "-o", "json").out + run("nodes", "-o", "name").out
    gateway.on("GET", "/v1/nodes/n1", sick("n1"))
    assert run("nodes", "describe", "n1").out.splitlines()[-1] == footer, "a fault there may not have closed the node"
    assert "breaker" not in run("nodes", "describe", "n1", "-o", "json").out


def test_a_node_that_takes_no_work_is_drained_to_slurm(gateway: GatewayStub, run: Run) -> None:
    """The state of its GPUs is not idle and not allocated."""
    gateway.on("GET", "/v1/nodes", page(sick("n1")))
    gateway.on("GET", "/v1/queues", page(queue_document("default")))
    assert "drain" in run("sinfo").out


def test_nodes_name_clocks_that_were_set_or_differ(gateway: GatewayStub, run: Run) -> None:
    """Below the table; other conditions are not of nodes, and documents stay as they are."""
    conditions = [
        {"code": "telemetry_silent", "message": "telemetry has not answered for 31 s"},
        {
            "code": "clock_stepped",
            "message": "queue: its machine's clock is 3600 s ahead of log time, which creeps to it",
        },
    ]
    gateway.on("GET", "/v1/nodes", page())
    gateway.on("GET", "/readyz", {"ready": True, "bus": True, "sequence": 40, "log_end": 40, "conditions": conditions})
    table, footer = run("nodes").out.splitlines()
    assert table == "no nodes have joined"
    assert footer == "clock: queue: its machine's clock is 3600 s ahead of log time, which creeps to it"
    assert "clock" not in run("nodes", "-o", "json").out


RACKS = [
    node_document(id="sim-1", labels={"rack": "r1", "kind": "a"}),
    node_document(id="sim-2", labels={"rack": "r1"}, jobs=[]),
    node_document(id="sim-3", labels={"rack": "r2"}, state="drained", jobs=[str(job) for job in range(7)]),
]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (("sim-[1-3]",), ["sim-1", "sim-2", "sim-3"]),
        (("sim-2,sim-1", "sim-[1-2]"), ["sim-2", "sim-1"]),
        (("-l", "rack=r1"), ["sim-1", "sim-2"]),
        (("-l", "rack=r1", "-l", "kind=a"), ["sim-1"]),
        (("sim-3", "--selector", "kind=a"), ["sim-3", "sim-1"]),
    ],
)
def test_nodes_are_chosen_by_lists_ranges_and_labels(
    gateway: GatewayStub, run: Run, words: tuple[str, ...], chosen: list[str]
) -> None:
    """Each once, in the order named; a dry run names the same and sends nothing."""
    gateway.on("GET", "/v1/nodes", page(*RACKS))
    for node in ("sim-1", "sim-2", "sim-3"):
        gateway.on("POST", f"/v1/nodes/{node}:cordon", {"id": node, "sequence": 41})
    planned = run("cordon", *words, "--dry-run")
    assert (planned.code, [line.split()[0] for line in planned.out.splitlines()]) == (0, chosen)
    assert all(" would be cordoned; it is " in line for line in planned.out.splitlines())
    assert {request.method for request in gateway.requests} == {"GET"} and "nothing was sent" in planned.err
    assert run("cordon", *words).out == "".join(f"{node} cordoned\n" for node in chosen)


def test_a_dry_run_says_what_a_node_is_and_names_those_that_are_not_there(gateway: GatewayStub, run: Run) -> None:
    """The others are written first."""
    gateway.on("GET", "/v1/nodes", page(*RACKS))
    ran = run("drain", "sim-[2-4]", "--dry-run")
    assert ran.out == (
        "sim-2 would be drained; it is ready, without jobs\n"
        "sim-3 would be drained; it is drained, with 7 jobs: 0, 1, 2, 3, 4, …\n"
    )
    assert ran.code == 3 and "there is no node sim-4" in ran.err
    facts = msgspec.json.decode(run("taint", "sim-1", "a=b:NoSchedule", "--dry-run", "-o", "json").out)
    assert facts == [{"node": "sim-1", "would_be": "tainted with a=b:NoSchedule", "state": "ready", "jobs": ["812"]}]


def test_a_taint_takes_nodes_by_label(gateway: GatewayStub, run: Run) -> None:
    """The last word is the taint."""
    gateway.on("GET", "/v1/nodes", page(*RACKS))
    for node in ("sim-1", "sim-2"):
        for verb in ("taint", "untaint"):
            gateway.on("POST", f"/v1/nodes/{node}:{verb}", {"id": node, "sequence": 41})
    assert run("taint", "-l", "rack=r1", "a=b:NoSchedule").out == "sim-1 tainted\nsim-2 tainted\n"
    assert run("untaint", "a", "-l", "rack=r1").out == "sim-1 untainted\nsim-2 untainted\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("cordon",), 2, "expected at least one node or --selector"),
        (("taint", "a=b:NoSchedule"), 2, "expected at least one node or --selector"),
        (("cordon", "sim-[1-"), 2, "expected a hostlist"),
        (("cordon", "sim-[1-99999]"), 2, "expected 1 to 10000 nodes"),
        (("cordon", ""), 2, "expected 1 to 10000 nodes"),
        (("cordon", "-l", "rack"), 2, "--selector: expected key=value"),
        (("cordon", "-l", "rack=r9"), 3, "no node has the label rack=r9"),
    ],
)
def test_a_choice_of_no_node_is_refused(
    gateway: GatewayStub, run: Run, words: tuple[str, ...], code: int, message: str
) -> None:
    """Before anything is sent."""
    gateway.on("GET", "/v1/nodes", page(*RACKS))
    ran = run(*words)
    assert (ran.code, message in ran.err) == (code, True), ran.err
    assert all(request.method == "GET" for request in gateway.requests)


def test_a_gpu_is_restored_by_its_index(gateway: GatewayStub, run: Run) -> None:
    """The map has its UUID; an index that the node does not have is refused with the command that shows them."""
    gateway.on("GET", "/v1/map", msgspec.to_builtins(mapped.facts([mapped.node("n1", "..*"), mapped.node("n2", "*")])))
    gateway.on("POST", "/v1/nodes/n1:restore", NODE)
    assert run("restore", "n1", "2").out == "n1 uses 2 again\n"
    assert gateway.bodies() == [{"gpu": "GPU-n1-2"}]
    ran = run("restore", "n1", "7")
    assert (ran.code, "fairlead nodes describe n1" in ran.err) == (3, True)
