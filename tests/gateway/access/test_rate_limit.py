"""Rates of requests and of submitted jobs: off by default; a caller beyond its rate waits, others do not."""

from hypothesis import example, given
from hypothesis import strategies as st

from fairlead_gateway.access.rate_limit import CALLERS_MAX, RateLimit
from fairlead_gateway.server.http_server import HttpSettings
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.access.socket_world import SocketWorld
from tests.gateway.world import GatewayWorld

JOB = {"command": ["true"]}


def limit(per_minute: int) -> RateLimit:
    """Return a bound on requests."""
    return RateLimit(per_minute, "too_many", "requests", "SETTING")


@given(st.integers(1, 50), st.lists(st.tuples(st.integers(1, 3), st.floats(0, 20)), min_size=1, max_size=60))
@example(1, [(1, 0.0), (1, 0.0), (1, 1.9729544492821702), (1, 0.0)])  # a wait of whole seconds, but for rounding
def test_who_waits_as_long_as_the_answer_says_is_taken(per_minute: int, sent: list[tuple[int, float]]) -> None:
    """No caller sends more than twice the rate within a minute."""
    rate, now, taken = limit(per_minute), 0.0, list[tuple[float, int]]()
    for amount, pause in sent:
        now += pause
        refused = rate.take("ada", amount, now)
        if refused is None:
            taken.append((now, amount))
        else:
            assert refused.status == 429 and refused.retry_after_s > 0
            assert rate.take("ada", amount, now + refused.retry_after_s) is None
            now += refused.retry_after_s
            taken.append((now, amount))
        assert sum(each for at, each in taken if at > now - 60) <= 2 * per_minute + 2


def test_callers_are_apart_and_bounded() -> None:
    """Those with the lowest levels are forgotten first."""
    rate = limit(2)
    assert [rate.take("ada", 1, 0.0) is None for _ in range(3)] == [True, True, False]
    assert rate.take("bob", 1, 0.0) is None
    for number in range(2 * CALLERS_MAX):
        rate.take(number, 1, 0.0)
    assert len(rate._levels) <= CALLERS_MAX
    assert rate.take("ada", 1, 1.0) is not None
    assert not limit(0) and all(limit(0).take("x", 1, 0.0) is None for _ in range(10))


async def test_a_token_beyond_its_rate_waits_and_other_people_do_not() -> None:
    """By person, with all tokens together; probes are always answered."""
    async with SignedWorld(http=HttpSettings(requests_per_minute=5)) as world:
        await world.person("ada", viewer="cluster")
        await world.person("bob", viewer="cluster")
        await world.token("second", "ada")
        found = [(await world.ask(token, "GET", "/v1/queues")).status_code for token in ("ada", "second") * 4]
        assert found == [200] * 5 + [429] * 3
        refused = await world.ask("ada", "POST", "/v1/jobs", json=JOB)
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:fairlead:problem:too_many_requests")
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert "FAIRLEAD_HTTP_REQUESTS" in refused.json()["hint"]
        assert (await world.ask("bob", "GET", "/v1/queues")).status_code == 200
        assert {(await world.http.get("/healthz")).status_code for _ in range(20)} == {200}


async def test_a_flood_of_submits_waits_and_reads_are_answered() -> None:
    """Jobs of a list count one by one; nothing of a refused list is stored."""
    async with GatewayWorld(http=HttpSettings(submits_per_minute=10)) as world:
        ada, bob = {"x-fairlead-user": "ada"}, {"x-fairlead-user": "bob"}
        assert (await world.http.post("/v1/jobs", json=[JOB] * 10, headers=ada)).status_code == 200
        for body in (JOB, [JOB] * 3):
            refused = await world.http.post("/v1/jobs", json=body, headers=ada)
            assert (refused.status_code, refused.json()["type"]) == (429, "urn:fairlead:problem:too_many_submits")
            assert refused.headers["retry-after"]
        event = {"ce-specversion": "1.0", "ce-type": "fairlead.job.submit.v1", "ce-source": "x", "ce-id": "1"}
        assert (await world.http.post("/v1/events", json=JOB, headers=ada | event)).status_code == 429
        assert (await world.http.post("/v1/jobs", json=JOB, headers=bob)).status_code == 201
        assert (await world.http.post("/v1/jobs/1:cancel", headers=ada)).status_code == 200
        assert len(world.gateway.views.jobs.rows) == 11
        assert (await world.http.get("/v1/jobs", headers=ada)).status_code == 200


async def test_requests_that_skip_asgi_count() -> None:
    """On one connection: the sixth is refused."""
    async with SocketWorld(http=HttpSettings(requests_per_minute=5)) as world, world.line() as line:
        body = b'{"command": ["true"]}'
        head = (
            f"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\nauthorization: {world.bearer('owner')['authorization']}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()
        assert [(await line.send(head + body))[0] for _ in range(7)] == [201] * 5 + [429] * 2
