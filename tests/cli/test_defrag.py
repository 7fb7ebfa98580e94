"""`fairlead defrag`: the plan in words, and as the API has it."""

import json

from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub

MOVE = {"job": "3", "attempt": 1, "gpu_milli": 2000, "sources": ["n1"], "targets": ["n4"], "cost_gpu_s": 7440}
PLAN = {
    "job": "812",
    "attempt": 1,
    "gpu_milli": 8000,
    "moves": [MOVE],
    "moves_hidden": 0,
    "nodes": ["n1"],
    "gain_gpu_s": 28_800,
    "cost_gpu_s": 7440,
    "why_not": "",
    "message": "",
}
FEW = PLAN | {"job": "813", "moves": [], "nodes": [], "why_not": "few_free", "message": "too few GPUs are free in all"}
DEAR = PLAN | {"job": "814", "gain_gpu_s": 60, "why_not": "costs_more", "message": "the moves cost more"}


def answer(*plans: object, on: bool = False) -> dict[str, object]:
    """Build the gateway's answer."""
    return {"pool": "a100", "on": on, "plans": list(plans), "plans_hidden": 0, "sequence": 40}


def test_the_plan_says_what_moves_and_what_starts(gateway: GatewayStub, run: Run) -> None:
    """Each job with its verdict, each move with its nodes and cost."""
    gateway.on("GET", "/v1/pools/a100/defrag", answer(PLAN, FEW, DEAR))
    assert run("defrag", "a100", "--dry-run").out == (
        "pool a100: defragmentation is off: nothing is ever moved\n"
        "job 812 (8 GPUs): would start on n1: gains 28800 GPU-seconds, costs 7440\n"
        "  move job 3 (2 GPUs) from n1 to n4, costs 7440 GPU-seconds\n"
        "job 813 (8 GPUs): too few GPUs are free in all\n"
        "job 814 (8 GPUs): would start on n1, but the moves cost more: gains 60 GPU-seconds, costs 7440\n"
        "  move job 3 (2 GPUs) from n1 to n4, costs 7440 GPU-seconds\n"
    )


def test_jobs_that_one_may_not_see_are_counted(gateway: GatewayStub, run: Run) -> None:
    """Moves of a plan, and whole plans."""
    hidden = {**answer({**PLAN, "moves": [], "moves_hidden": 2}), "plans_hidden": 1}
    gateway.on("GET", "/v1/pools/a100/defrag", hidden)
    assert run("defrag", "a100").out.splitlines()[1:] == [
        "job 812 (8 GPUs): would start on n1: gains 28800 GPU-seconds, costs 7440",
        "  move 2 jobs that you may not see",
        "1 job that you may not see: a place is wanted for it",
    ]


def test_without_waiting_jobs_the_pools_setting_is_shown(gateway: GatewayStub, run: Run) -> None:
    """Of the default pool if none is named."""
    gateway.on("GET", "/v1/pools/default/defrag", answer(on=True) | {"pool": "default"})
    assert run("defrag").out == (
        "pool default: defragmentation is on: plans that gain are carried out, one at a time\n"
        "no job waits for a place\n"
    )


def test_json_is_the_apis(gateway: GatewayStub, run: Run) -> None:
    """Byte for byte what it says."""
    gateway.on("GET", "/v1/pools/a100/defrag", answer(PLAN))
    assert json.loads(run("defrag", "a100", "-o", "json").out) == answer(PLAN)
    assert run("defrag", "a100", "-o", "name").out == "job/812\n"
