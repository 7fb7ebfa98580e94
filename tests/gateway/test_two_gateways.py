"""Two gateways on one log: of two clients that saw the same, one changes it and the other gets a 412."""

import asyncio

import httpx

from fairlead_gateway.service import Gateway
from fairlead_gateway.sources.live_views import LiveViews
from tests.gateway.world import GatewayWorld
from tests.kit.eventually import eventually_async


class SecondGateway:
    """Second gateway on the bus of a world. Use `async with SecondGateway(world) as http`."""

    def __init__(self, world: GatewayWorld) -> None:
        self._world = world

    async def __aenter__(self) -> httpx.AsyncClient:
        bus = self._world.hub.connect()
        folding = LiveViews(bus)
        await folding.restore()
        self._gateway = Gateway(bus, self._world.settings, folding)
        self._background = asyncio.create_task(self._gateway.background())
        await eventually_async(lambda: folding.caught_up and "default" in self._gateway.views.queues.rows)
        transport = httpx.ASGITransport(self._gateway.app, raise_app_exceptions=False)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30)
        return self._http

    async def __aexit__(self, *_: object) -> None:
        self._gateway.feed.close()
        self._background.cancel()
        await asyncio.gather(self._background, return_exceptions=True)
        await self._http.aclose()


async def test_of_two_changes_at_two_gateways_one_is_refused() -> None:
    """Of a job, and of a queue by PUT and by file; 20 races of each. What is there afterwards is the winner's."""
    async with GatewayWorld() as world, SecondGateway(world) as other:
        await world.configure(lab={"weight": 2})
        job = await world.submit()

        async def race(shown: str, method: str, path: str, first: object, second: object) -> int:
            tag = {"if-match": (await world.http.get(shown)).headers["etag"]}
            answers = await asyncio.gather(
                world.http.request(method, path, json=first, headers=tag),
                other.request(method, path, json=second, headers=tag),
            )
            found = sorted(answer.status_code for answer in answers)
            assert found == [200, 412], [answer.text for answer in answers]
            refused = answers[0] if answers[0].status_code == 412 else answers[1]
            assert refused.json()["type"] == "urn:fairlead:problem:changed_since"
            assert "ETag" in refused.json()["hint"]
            return next(index for index, answer in enumerate(answers) if answer.status_code == 200)

        for turn in range(20):
            values = [{"priority": 10 + 2 * turn}, {"priority": 11 + 2 * turn}]
            won = await race(f"/v1/jobs/{job}", "PATCH", f"/v1/jobs/{job}", *values)
            assert (await world.job(job))["priority"] == values[won]["priority"]
            weights = [{"weight": 3 + 2 * turn}, {"weight": 4 + 2 * turn}]
            won = await race("/v1/queues/lab", "PUT", "/v1/queues/lab", *weights)
            assert (await world.http.get("/v1/queues/lab")).json()["settings"]["weight"] == weights[won]["weight"]
            files = [{"queues": {"lab": {"weight": 50 + 2 * turn + each}}} for each in (0, 1)]
            won = await race("/v1/queues", "POST", "/v1/queues:apply", *files)
            shown = (await world.http.get("/v1/queues/lab")).json()["settings"]["weight"]
            assert shown == files[won]["queues"]["lab"]["weight"]


async def test_labels_that_two_gateways_add_at_once_are_all_kept() -> None:
    """Each merges with what it sees; one that is too late merges again, also under a key."""
    async with GatewayWorld() as world, SecondGateway(world) as other:
        job = await world.submit()
        for turn in range(20):
            answers = await asyncio.gather(
                world.http.patch(f"/v1/jobs/{job}", json={"labels": {f"a{turn}": "1"}}),
                other.patch(f"/v1/jobs/{job}", json={"labels": {f"b{turn}": "1"}}),
                other.patch(
                    f"/v1/jobs/{job}", json={"labels": {f"c{turn}": "1"}}, headers={"idempotency-key": f"k{turn}"}
                ),
            )
            assert [answer.status_code for answer in answers] == [200, 200, 200], [each.text for each in answers]
        labels = (await world.job(job))["spec"]["labels"]
        assert labels.keys() == {f"{letter}{turn}" for letter in "abc" for turn in range(20)}


async def test_a_repeated_change_is_answered_as_the_first() -> None:
    """Its own change does not make it stale: the key says that it is the same request, at any gateway."""
    async with GatewayWorld() as world, SecondGateway(world) as other:
        await world.configure(lab={})
        seen = await world.http.get("/v1/queues/lab")
        headers = {"if-match": seen.headers["etag"], "idempotency-key": "k1"}
        first = await world.http.put("/v1/queues/lab", json={"weight": 5}, headers=headers)
        assert (first.status_code, first.headers["etag"]) == (200, f'W/"{first.json()["sequence"]}"')
        for client in (world.http, other):
            again = await client.put("/v1/queues/lab", json={"weight": 5}, headers=headers)
            assert again.status_code == 200, again.text


async def test_queue_documents_have_entity_tags() -> None:
    """Lists of queues and pools, single queues, and the answers to changes; what a client has is not sent again."""
    async with GatewayWorld() as world:
        await world.configure(lab={})
        for path in ("/v1/queues", "/v1/queues/lab", "/v1/pools"):
            seen = await world.http.get(path)
            assert seen.headers["etag"] == f'W/"{seen.headers["x-fairlead-sequence"]}"'
            for tag in (seen.headers["etag"], f'"x", {seen.headers["etag"]}', "*"):
                again = await world.http.get(path, headers={"if-none-match": tag})
                assert (again.status_code, again.content) == (304, b"")
        applied = await world.http.post("/v1/queues:apply", json={"queues": {"lab": {"weight": 2}}})
        assert applied.headers["etag"] == f'W/"{applied.json()["sequence"]}"'
        stale = await world.http.delete("/v1/queues/lab", headers={"if-match": seen.headers["etag"]})
        assert stale.status_code == 412
        for tag in ("mine", "", '"a"', "W/", "812", '"1" "2"'):
            wrong = await world.http.put("/v1/queues/lab", json={}, headers={"if-match": tag})
            assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "If-Match"), tag
        for path in ("/v1/queues/lab:hold", "/v1/queues/lab:release"):
            wrong = await world.http.post(path, headers={"if-match": applied.headers["etag"]})
            assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "If-Match"), (
                "it would not be heeded"
            )
        assert (await world.http.get("/v1/queues/lab")).json()["held"] is None
        before = world.commands_stored()
        for body in ({"command": ["true"]}, [{"command": ["true"]}]):
            wrong = await world.http.post("/v1/jobs", json=body, headers={"if-match": 'W/"1"'})
            assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "If-Match"), (
                "a submit has no version"
            )
        assert world.commands_stored() == before
        assert (
            await world.http.post("/v1/jobs", json={"command": ["true"]}, headers={"if-match": "*"})
        ).status_code == 201
        fresh = {"if-match": f'"1", {applied.headers["etag"]}'}
        assert (await world.http.delete("/v1/queues/lab", headers=fresh)).status_code == 200
