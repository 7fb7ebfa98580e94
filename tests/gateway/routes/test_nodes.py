"""Requests about nodes over HTTP: taints, quarantine, unhealthy GPUs, windows, rollouts, the breaker."""

from fairlead_gateway.views.fold import Views
from fairlead_schemas.units.timestamps import HOUR_NS, rfc3339
from tests.gateway.world import GatewayWorld, gpus
from tests.kit.eventually import eventually_async


async def ask(world: GatewayWorld, path: str, wish: dict | None = None, status: int = 200) -> dict:
    """POST a request and return the answer's document."""
    answer = await world.http.post(path, json=wish or {}, headers={"x-fairlead-user": "ops"})
    assert answer.status_code == status, answer.text
    return answer.json()


async def read(world: GatewayWorld, path: str) -> dict:
    """GET a document."""
    answer = await world.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_tainted_node_is_shown_and_explained_to_its_jobs() -> None:
    """Set, shown, named by `why`, removed; the same taint cannot be removed twice."""
    async with GatewayWorld() as world:
        await world.node("n1")
        node = await ask(world, "/v1/nodes/n1:taint", {"taint": "team=a:NoSchedule", "reason": "theirs"})
        assert (node["state"], node["taints"]) == ("ready", ["team=a:NoSchedule"])
        job = await world.submit(resources=gpus(1))
        await world.in_state(job, "offered")
        await eventually_async(lambda: bool(world.gateway.views.waiting.refusals))
        assert "has a taint that the job does not tolerate" in (await world.why(job))["reason"]["message"]
        assert (await ask(world, "/v1/nodes/n1:untaint", {"taint": "team"}))["taints"] == []
        await world.in_state(job, "placed")
        assert (await ask(world, "/v1/nodes/n1:untaint", {"taint": "team"}, 404))["type"].endswith("not_found")
        assert (await ask(world, "/v1/nodes/n1:taint", {"taint": "team"}, 422))["type"].endswith("bad_taint")
        await ask(world, "/v1/nodes/nope:taint", {"taint": "a:NoSchedule"}, 404)
        await ask(world, "/v1/nodes/n1:taint", {}, 422)


async def test_quarantine_and_release() -> None:
    """A node in quarantine shows why; released twice is a conflict."""
    async with GatewayWorld() as world:
        await world.node("n1")
        node = await ask(world, "/v1/nodes/n1:quarantine", {"reason": "smells"})
        assert (node["state"], node["reason"]) == ("quarantined", "smells")
        assert (await ask(world, "/v1/nodes/n1:unquarantine"))["state"] == "ready"
        await ask(world, "/v1/nodes/n1:unquarantine", status=409)


async def test_a_health_report_takes_a_gpu_out_of_use_and_a_user_restores_it() -> None:
    """As an agent publishes it: the GPU is not free and the node is tainted until the restore."""
    async with GatewayWorld() as world:
        node = await world.node("n1", 2)
        gpu = world.gateway.views.nodes.rows["n1"].inventory.gpus[0].uuid
        await node.sick(gpu, "xid79")
        await eventually_async(lambda: bool(world.gateway.views.nodes.rows["n1"].taints))
        shown = await read(world, "/v1/nodes/n1")
        assert (shown["faulted"], shown["gpus_free"]) == ({gpu: "xid79"}, 0)
        assert shown["gpu_states"] == {"unhealthy": 1, "closed": 1}
        assert shown["taints"] == ["fairlead/unhealthy=xid79:NoSchedule"]
        await ask(world, "/v1/nodes/n1:untaint", {"taint": "fairlead/unhealthy"}, 409)
        shown = await ask(world, "/v1/nodes/n1:restore", {"gpu": gpu})
        assert (shown["faulted"], shown["gpus_free"], shown["taints"]) == ({}, 2, [])
        await ask(world, "/v1/nodes/n1:restore", {"gpu": gpu}, 409)


async def test_a_rollout_from_its_start_to_its_end() -> None:
    """Started, paused, resumed, one node marked as done; it stays in the list when it is over."""
    async with GatewayWorld() as world:
        for name in ("n1", "n2"):
            await world.node(name)
        wish = {
            "name": "driver",
            "all": True,
            "budgetGpus": 8,
            "deadline": "1h",
            "want": {"driver": "580"},
            "reason": "CVE",
        }
        found = await ask(world, "/v1/rollouts", wish)
        assert (found["state"], found["want"], found["deadline_seconds"]) == ("running", ["driver=580"], 3600)
        await eventually_async(lambda: world.gateway.views.nodes.rows["n1"].drained)
        assert (await read(world, "/v1/rollouts/driver"))["nodes"] == {"draining": ["n1"], "waiting": ["n2"]}
        assert (await read(world, "/v1/nodes/n1"))["reason"] == "rollout driver: CVE"
        assert (await ask(world, "/v1/rollouts/driver:pause", {"reason": "lunch"}))["state"] == "paused"
        assert (await ask(world, "/v1/rollouts/driver:done", {"node": "n1"}))["nodes"]["returned"] == ["n1"]
        assert (await ask(world, "/v1/rollouts/driver:resume"))["state"] == "running"
        await eventually_async(lambda: world.gateway.views.nodes.rows["n2"].drained)
        assert (await read(world, "/v1/rollouts/driver"))["gpus_away"] == 8
        cancelled = await ask(world, "/v1/rollouts/driver:cancel")
        assert (cancelled["state"], cancelled["gpus_away"]) == ("cancelled", 0)
        assert cancelled["nodes"] == {"returned": ["n1", "n2"]}, "a cancelled rollout drains nothing any more"
        assert [row["name"] for row in (await read(world, "/v1/rollouts"))["items"]] == ["driver"]
        await ask(world, "/v1/rollouts/driver:cancel", status=404)
        assert (await world.http.get("/v1/rollouts/none")).status_code == 404
        refused = await ask(world, "/v1/rollouts", {"name": "x", "all": True, "budgetGpus": 1}, 422)
        assert refused["type"].endswith("budget_too_small")
        assert (await ask(world, "/v1/rollouts", {"name": "x"}, 422))["errors"][0]["field"] == "budgetGpus"


async def test_a_window_is_scheduled_shown_and_cancelled() -> None:
    """Times in RFC 3339, durations in words; what cannot be meant is refused at its field."""
    async with GatewayWorld() as world:
        await world.node("n1")
        starts = rfc3339(world.gateway.views.at_ns + HOUR_NS)
        wish = {"name": "cooling", "nodes": ["n1"], "starts": starts, "duration": "2h", "notice": "2h"}
        assert (await ask(world, "/v1/maintenance", wish))["nodes"] == ["n1"]
        await eventually_async(lambda: world.gateway.views.plans.windows["cooling"].started)
        await eventually_async(lambda: world.gateway.views.nodes.rows["n1"].drained)
        [shown] = (await read(world, "/v1/maintenance"))["items"]
        assert (shown["state"], shown["starts_at"], shown["notice_seconds"]) == ("started", starts, 7200)
        await ask(world, "/v1/maintenance", wish, 409)
        assert (await ask(world, "/v1/maintenance", {**wish, "starts": "soon"}, 422))["errors"][0]["field"] == "starts"
        assert (await ask(world, "/v1/maintenance", {**wish, "ends": starts}, 422))["errors"][0]["field"] == "ends"
        await ask(world, "/v1/maintenance/cooling:cancel")
        assert (await read(world, "/v1/nodes/n1"))["state"] == "ready"
        await ask(world, "/v1/maintenance/cooling:cancel", status=404)


async def test_the_breaker_is_shown_and_reset() -> None:
    """Two sick nodes of two: the second trips it, a person resets it, and it trips no more than it must."""
    async with GatewayWorld() as world:
        assert (await read(world, "/v1/breaker"))["tripped"] == []
        await ask(world, "/v1/breaker:reset", status=409)
        for name in ("n1", "n2"):
            node = await world.node(name, 1)
            gpu = world.gateway.views.nodes.rows[name].inventory.gpus[0].uuid
            await node.sick(gpu, "xid79")
        await eventually_async(lambda: bool(world.gateway.views.plans.tripped))
        [tripped] = (await read(world, "/v1/breaker"))["tripped"]
        assert (tripped["kind"], tripped["found"], tripped["allowed"], tripped["of"]) == ("nodes", 2, 1, 2)
        restored = Views.restore(world.gateway.views.snapshot())
        assert restored is not None and restored.snapshot() == world.gateway.views.snapshot()
        assert (await ask(world, "/v1/breaker:reset"))["tripped"] == []
        await eventually_async(lambda: bool(world.gateway.views.nodes.rows["n2"].taints))


async def test_an_idempotency_key_identifies_one_request_here_too() -> None:
    """The same taint under one key is one command; another one under it is a conflict."""
    async with GatewayWorld() as world:
        await world.node("n1")
        key = {"idempotency-key": "t"}
        for _ in range(2):
            wish = {"taint": "a:NoSchedule"}
            assert (await world.http.post("/v1/nodes/n1:taint", json=wish, headers=key)).status_code == 200
        wish = {"taint": "b:NoSchedule"}
        assert (await world.http.post("/v1/nodes/n1:taint", json=wish, headers=key)).status_code == 409


async def test_health_faults_are_shown_with_their_evidence_until_they_are_over() -> None:
    """Of a GPU and of the node itself: meaning, evidence, since when, and the remedy."""
    async with GatewayWorld() as world:
        node = await world.node("n1", 2)
        gpu = world.gateway.views.nodes.rows["n1"].inventory.gpus[0].uuid
        await node.sick(gpu, "xid79")
        await node.sick("", "disk_full")
        await eventually_async(lambda: len(world.gateway.views.nodes.rows["n1"].ailments) == 2)
        of_gpu, of_node = (await read(world, "/v1/nodes/n1"))["health"]
        assert (of_gpu["gpu"], of_gpu["code"], of_gpu["severity"], of_gpu["evidence"]) == (gpu, "xid79", "node", "seen")
        assert of_gpu["words"] == "XID 79, GPU has fallen off the bus" and of_gpu["since"].endswith("Z")
        assert (of_node["gpu"], of_node["code"], of_node["severity"]) == ("", "disk_full", "node")
        assert (await ask(world, "/v1/nodes/n1:restore", {}))["health"] == [of_gpu]
        shown = await ask(world, "/v1/nodes/n1:restore", {"gpu": gpu})
        assert (shown["health"], shown["taints"]) == ([], [])


async def test_a_lost_node_is_removed_from_every_view() -> None:
    """Refused while its lease runs; then it is in no list, no map and no metric, and every verb on it is a 404."""
    async with GatewayWorld() as world:
        for name in ("n1", "n2"):
            await world.node(name)
        refused = await ask(world, "/v1/nodes/n1:remove", {"reason": "sold"}, 409)
        assert refused["type"].endswith("not_lost") and "fairlead drain n1" in refused["detail"]
        await ask(world, "/v1/nodes/n3:remove", status=404)
        await world.lose("n1")
        assert 'fairlead_nodes{pool="default",state="lost"} 1.0' in (await world.http.get("/metrics")).text
        answer = await ask(world, "/v1/nodes/n1:remove", {"reason": "sold"})
        assert answer["id"] == "n1"
        assert [node["id"] for node in (await read(world, "/v1/nodes"))["items"]] == ["n2"]
        assert [node["id"] for node in (await read(world, "/v1/map"))["nodes"]] == ["n2"]
        assert 'state="lost"' not in (await world.http.get("/metrics")).text
        assert (await world.http.get("/v1/nodes/n1")).status_code == 404
        await ask(world, "/v1/nodes/n1:remove", status=404)
