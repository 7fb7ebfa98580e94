"""`fairlead packing`: a pool's policy and facts in words, and the policy chosen."""

import json
from typing import Any

from fairlead_schemas.queuefile.settings import PACKINGS
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, applied, page


def room(domain: str, nodes: int, gpus: int) -> dict[str, Any]:
    """Of a gang."""
    return {"domain": domain, "nodes": nodes, "gpus_per_node": gpus}


FACTS: dict[str, Any] = {
    "pool": "a100", "policy": "spread", "nodes": 9, "gpus": 72, "gpu_milli_free": 20_500, "gpu_milli_aside": 8000,
    "gpu_milli_unusable": 3500, "requests_seen": 1204, "largest_on_one_node": {"node": "n7", "gpus": 8},
    "largest_gangs": {
        "block": [room("b1", 2, 8)], "pool": [room("a100", 2, 8), room("a100", 5, 1)],
        "rack": [room("r1", 1, 8), room("r2", 3, 4)],
    },
    "sequence": 40, "at": None,
}  # fmt: skip
NOTHING: dict[str, Any] = FACTS | {
    "gpu_milli_free": 0,
    "gpu_milli_aside": 0,
    "gpu_milli_unusable": 0,
    "largest_on_one_node": None,
    "largest_gangs": {"pool": []},
}


def pool(name: str, **settings: Any) -> dict[str, Any]:
    """As GET /v1/pools lists it."""
    return {"name": name, "settings": settings, "queues": [], "nodes": 1, "gpus": 1, "sequence": 40}


def test_the_facts_are_readable(gateway: GatewayStub, run: Run) -> None:
    """The policy, free and usable capacity, and the largest jobs by level, the smallest level first."""
    gateway.on("GET", "/v1/pools/a100/packing", FACTS)
    assert run("packing", "a100").out == (
        "pool a100: nodes are chosen by spread\n"
        "9 nodes, 72 GPUs: 20.500 free, and 8 on nodes that do not take everybody's work\n"
        "fragmentation: 3.500 of the free GPUs (17 %) are of no use to the usual job, of 1204 that have come\n"
        "could start now, by GPUs alone:\n"
        "  on one node: 8 GPUs (n7)\n"
        "  in one rack: 1 node x 8 GPUs (r1), 3 nodes x 4 GPUs (r2)\n"
        "  in one block: 2 nodes x 8 GPUs (b1)\n"
        "  in the pool: 2 nodes x 8 GPUs, 5 nodes x 1 GPU\n"
    )


def test_pools_with_few_facts(gateway: GatewayStub, run: Run) -> None:
    """A full pool, one without any job yet, and one without nodes; the default one if none is named."""
    gateway.on("GET", "/v1/pools/default/packing", NOTHING)
    assert run("packing").out.splitlines()[1:] == [
        "9 nodes, 72 GPUs: 0 free",
        "fragmentation: nothing is free",
        "could start now: nothing that needs a whole GPU",
    ]
    gateway.on("GET", "/v1/pools/default/packing", FACTS | {"requests_seen": 0, "gpu_milli_unusable": 0})
    assert "fragmentation: not known before a job has asked for GPUs here\n" in run("packing").out
    gateway.on("GET", "/v1/pools/default/packing", {"pool": "default", "policy": "fgd", "sequence": 40})
    assert run("packing").out == "pool default: nodes are chosen by fgd\nno node is of this pool\n"


def test_the_past_is_queried_by_time(gateway: GatewayStub, run: Run) -> None:
    """The time is in the query, and the output has it with the log sequence."""
    gateway.on("GET", "/v1/pools/a100/packing", NOTHING | {"at": "2026-11-02T08:59:58.120Z"})
    assert run("packing", "a100", "--at", "2026-11-02T09:00:00Z").out == (
        "pool a100: nodes were chosen by spread\n"
        "as of log sequence 40, 2026-11-02T08:59:58.120Z\n"
        "9 nodes, 72 GPUs: 0 free\n"
        "fragmentation: nothing is free\n"
        "could start then: nothing that needs a whole GPU\n"
    )
    assert gateway.requests[-1].url.params["at"] == "2026-11-02T09:00:00Z"
    both = run("packing", "a100", "--at", "40", "--policy", "spread")
    assert (both.code, both.out) == (2, "")
    assert "--policy is for from now on, --at shows what was" in both.err


def test_json_is_the_apis(gateway: GatewayStub, run: Run) -> None:
    """Byte for byte what it says."""
    gateway.on("GET", "/v1/pools/a100/packing", FACTS)
    assert json.loads(run("packing", "a100", "-o", "json").out) == FACTS
    assert run("packing", "a100", "-o", "name").out == "pool/a100\n"


def test_a_policy_is_chosen_and_other_settings_stay(gateway: GatewayStub, run: Run) -> None:
    """A queue file of that one pool, with all that it was set to."""
    gateway.on("GET", "/v1/pools", page(pool("a100", sequencer="fifo", packing="fgd"), pool("default")))
    gateway.on("POST", "/v1/queues:apply", applied() | {"configured": 1, "unchanged": 0})
    assert run("packing", "a100", "--policy", "spread").out == "pool a100: nodes are chosen by spread from now on\n"
    [sent] = gateway.bodies()
    assert sent == {"pools": {"a100": {"sequencer": "fifo", "packing": "spread"}}}
    gateway.on("POST", "/v1/queues:apply", applied())
    assert run("packing", "a100", "--policy", "spread").out == "pool a100: nodes are chosen by spread as before\n"


def test_unknown_names_are_refused_with_the_known_ones(gateway: GatewayStub, run: Run) -> None:
    """Of policies and of pools. Nothing is sent."""
    gateway.on("GET", "/v1/pools", page(pool("a100"), pool("default")))
    wrong = run("packing", "a100", "--policy", "tight")
    assert (wrong.code, wrong.out) == (2, "")
    assert f'--policy: expected one of {", ".join(PACKINGS)}, found "tight"' in wrong.err
    missing = run("packing", "a1000", "--policy", "spread")
    assert missing.code == 3
    assert 'there is no pool "a1000"; there are a100, default' in missing.err
