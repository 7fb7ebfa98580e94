"""The past on every reading route: what a gateway answered then, moments that cannot be, and pages that stay at one moment."""

import msgspec
import pytest

from fairlead_bus.port import Stored
from fairlead_gateway.errors import HttpError
from fairlead_gateway.sources import historical_views
from fairlead_gateway.sources.historical_views import AT_HEADER
from fairlead_gateway.views.fold import Views
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit, commit_hash, decode_commit, encode_commit
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.standing import StandingGateway, fold, paths_at
from tests.gateway.world import GatewayWorld, gpus
from tests.replay.worlds import log_of

#: Sequences of a log at which it is looked at, as shares of its length.
SHARES = (0.1, 0.45, 0.8)


@pytest.fixture(params=[3, 8])
def messages(request: pytest.FixtureRequest) -> list[Stored]:
    """A recorded log."""
    return log_of(request.param)


@pytest.fixture
def one_log() -> list[Stored]:
    """The first of them."""
    return log_of(3)


async def test_an_answer_about_the_past_is_the_answer_of_then(messages: list[Stored]) -> None:
    """Byte for byte, on every route, also for a gateway whose views were restored from a snapshot."""
    asked = 0
    async with StandingGateway(messages) as now:
        for share in SHARES:
            sequence = int(len(messages) * share)
            restored = Views.restore(fold(messages[:sequence]).snapshot())
            async with (
                StandingGateway(messages[:sequence]) as then,
                StandingGateway(messages[:sequence], restored=restored) as again,
            ):
                for path in paths_at(then.views):
                    expected = await then.document(path)
                    assert await now.document(path, sequence) == expected, path
                    assert await again.document(path) == expected, path
                    asked += 1
    assert asked > 60, "the log has too little in it"


def test_views_restored_from_a_snapshot_continue_byte_for_byte(messages: list[Stored]) -> None:
    """Also the order of what they hold is that of the fold: answers are built in it."""
    for share in SHARES:
        half = int(len(messages) * share)
        restored = Views.restore(fold(messages[:half]).snapshot())
        assert restored is not None
        for stored in messages[half:]:
            restored.fold(stored.sequence, decode_commit(stored.payload))
        assert restored.snapshot() == fold(messages).snapshot()


async def test_a_moment_is_named_by_sequence_time_or_age(one_log: list[Stored]) -> None:
    """All three mean the last commit that is not later; the header says which one it was."""
    half = len(one_log) // 2
    at_ns = max(decode_commit(stored.payload).at_ns for stored in one_log[:half])
    while decode_commit(one_log[half].payload).at_ns <= at_ns:
        half += 1
    views = fold(one_log[:half])
    async with StandingGateway(one_log) as now:
        now.gateway.past.clock = lambda: at_ns + 7200 * 10**9
        for at in (half, rfc3339(at_ns)[:-1] + "999999Z", "2 hours ago", "2h ago"):
            answer = await now.get("/v1/cluster", at)
            if at == "2 hours ago" or at == "2h ago" or isinstance(at, int):
                assert answer.json()["sequence"] == half, at
            expected = f"{answer.json()['sequence']} {rfc3339(fold(one_log[: answer.json()['sequence']]).at_ns)}"
            assert answer.headers[AT_HEADER] == expected
            assert answer.headers["X-Fairlead-Sequence"] == str(answer.json()["sequence"])
        assert AT_HEADER not in (await now.get("/v1/cluster")).headers
    assert views.at_ns == at_ns


#: {moment: (status, words of the answer)}
REFUSED = {
    "0": (400, "sequences of the log start at 1"),
    "-5": (400, "sequences of the log start at 1"),
    "9" * 31: (400, "at most 18 digits"),
    str(10**17): (400, "the log is at sequence"),
    "2999-01-01T00:00:00Z": (400, "expected a time from 1970 to 2262"),
    "2199-01-01T00:00:00Z": (400, "this is in the future"),
    "2026-11-27T03:00:00": (400, "it names no zone"),
    "garbage": (400, "expected a log sequence"),
    "<b>\u202e": (400, "expected a log sequence"),
    "two hours ago": (400, "expected a log sequence"),
    "1970-01-02T00:00:00Z": (410, "the earliest is sequence 1"),
}


async def test_a_moment_that_cannot_be_is_refused(one_log: list[Stored]) -> None:
    """The words name `at`, what was expected and what was found; a moment before the log is gone, with the earliest."""
    async with StandingGateway(one_log) as gateway:
        for path in ("/v1/jobs", "/v1/nodes", "/v1/breaker", "/v1/jobs/1/why"):
            for at, (status, words) in REFUSED.items():
                answer = await gateway.http.get(path, params={"at": at})
                assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
                problem = answer.json()
                assert words in problem["detail"]
                if status == 400:
                    assert problem["detail"].startswith("at: ")
                    assert [each["field"] for each in problem["errors"]] == ["at"]
                else:
                    assert problem["hint"] == "ask with at=1"


def _crossing() -> list[Stored]:
    """Commits of two writers whose clocks differ: at 100, 90, 110, 105 and 120 seconds."""
    heads: dict[str, tuple[int, str]] = {"queue": (0, GENESIS), "placer": (0, GENESIS)}
    stored: list[Stored] = []
    for sequence, (writer, second) in enumerate(
        [("queue", 100), ("placer", 90), ("queue", 110), ("placer", 105), ("queue", 120)], 1
    ):
        n, prev = heads[writer]
        event = (
            ev.QueueConfigured(cause="clock", path=f"q{second}")
            if writer == "queue"
            else ev.BreakerReset(cause="clock", by="ada")
        )
        commit = Commit(
            v=VERSION,
            writer=writer,
            n=n + 1,
            basis=sequence - 1,
            at_ns=second * 10**9,
            cursors={},
            prev=prev,
            events=[event],
        )
        payload = encode_commit(commit)
        heads[writer] = (n + 1, commit_hash(payload))
        stored.append(Stored(sequence, subjects.log(writer), payload))
    return stored


@pytest.mark.parametrize(
    ("second", "sequence"), [(99, 0), (100, 2), (104, 2), (109, 2), (110, 4), (111, 4), (119, 4), (120, 5)]
)
async def test_a_time_between_crossing_clocks(second: int, sequence: int) -> None:
    """The last commit before the first one that is later counts, whatever an earlier writer's clock said; also without a fold."""
    async with StandingGateway(_crossing()) as gateway:
        at = rfc3339(second * 10**9)
        answer = await gateway.get("/v1/breaker", at)
        changes = await gateway.http.get(f"/v1/changes?from={at}")
        if not sequence:
            assert (answer.status_code, changes.status_code) == (410, 410)
            return
        assert answer.json()["sequence"] == sequence
        place = await gateway.gateway.past.place(at)
        assert (place.sequence, place.headers[AT_HEADER]) == (sequence, answer.headers[AT_HEADER])
        assert [int(each["sequence"]) for each in changes.json()["items"]] == list(range(sequence + 1, 6))


async def test_an_empty_log_has_no_past() -> None:
    """Any moment is refused in words."""
    async with StandingGateway([]) as gateway:
        for at in ("1", "2020-01-01T00:00:00Z"):
            answer = await gateway.get("/v1/jobs", at)
            assert answer.status_code == 400
            assert answer.json()["detail"].startswith("at: the log is")


async def test_a_trimmed_log_has_its_earliest_moment(one_log: list[Stored]) -> None:
    """What was trimmed is gone, with the earliest moment that can be had; behind it nothing is made up."""
    async with StandingGateway(one_log) as gateway:
        log = gateway.hub.streams[subjects.LOG]
        del log.messages[:20]
        for at in (5, 21, 60):
            answer = await gateway.get("/v1/jobs", at)
            assert answer.status_code == 410
            assert "the earliest is sequence 21" in answer.json()["detail"]
        with pytest.raises(HttpError, match="the earliest is sequence 21"):
            await gateway.gateway.past.place("20")
        assert (await gateway.gateway.past.place("22")).sequence == 22, "commits before are not looked for"


async def test_a_damaged_log_gives_no_answer_behind_the_damage(one_log: list[Stored]) -> None:
    """The sequence is named; before it the past can be read."""
    broken = list(one_log)
    broken[50] = Stored(51, broken[50].subject, broken[50].payload[:-9] + b'"broken"}')
    async with StandingGateway(broken, restored=fold(one_log)) as gateway:
        assert (await gateway.get("/v1/jobs", 40)).status_code == 200
        answer = await gateway.get("/v1/jobs", 60)
        assert answer.status_code == 503
        assert "51" in answer.json()["detail"]
        with pytest.raises(HttpError, match="51"):
            await gateway.gateway.past.place("60")


async def test_a_gateway_alone_folds_a_bounded_number_of_events(
    one_log: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond it the answer says what to start; what is near the log's start can be had."""
    async with StandingGateway(one_log) as gateway:
        monkeypatch.setattr(gateway.gateway.past, "_events_max", 30)
        assert (await gateway.get("/v1/jobs", 3)).status_code == 200
        answer = await gateway.get("/v1/jobs", len(one_log))
        assert answer.status_code == 503
        assert "python -m fairlead_replay.past" in answer.json()["hint"]


async def test_a_stored_snapshot_shortens_the_fold(one_log: list[Stored], monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway's own newest snapshot that is not later; the answer is the same."""
    monkeypatch.setattr(historical_views, "NEAR_START", 1)
    half = len(one_log) // 2
    async with StandingGateway(one_log[:half]) as then:
        await then.gateway.folding.save()
        async with StandingGateway(one_log) as now, StandingGateway(one_log[: half + 9]) as between:
            now.hub.objects = then.hub.objects
            monkeypatch.setattr(now.gateway.past, "_events_max", 60)
            for path in paths_at(between.views):
                assert await now.document(path, half + 9) == await between.document(path)
            assert (await now.get("/v1/jobs", half - 1)).status_code == 503


async def test_pages_stay_at_their_moment(one_log: list[Stored]) -> None:
    """The token of a page of the past names its moment: all pages of a list are of one sequence, also where `at` was an age."""
    half = len(one_log) // 2
    expected = fold(one_log[:half])
    async with StandingGateway(one_log) as gateway:
        for path, names in (
            ("/v1/jobs", [*reversed(expected.jobs.rows)]),
            ("/v1/nodes", sorted(expected.nodes.rows)),
            ("/v1/queues", sorted(row.path for row in expected.queues.existing())),
        ):
            found: list[str] = []
            page = (await gateway.get(f"{path}?limit=2", half)).json()
            while True:
                assert page["sequence"] == half
                found += [each.get("id") or each["path"] for each in page["items"]]
                if page["next"] is None:
                    break
                page = (await gateway.get(f"{path}?limit=2&continue={page['next']}")).json()
            assert found == names
        token = (await gateway.get("/v1/jobs?limit=1", half)).json()["next"]
        bad = await gateway.get(f"/v1/jobs?continue={token[:-3]}")
        assert bad.status_code in (200, 422)


async def test_a_job_of_the_past() -> None:
    """One that was submitted later is unknown then; one that had been retired is as telemetry knows it."""
    async with GatewayWorld() as world:
        node = await world.node("n1")
        first = world.gateway.views.sequence
        job = await world.run(node, resources=gpus(1))
        running = world.gateway.views.sequence
        await node.exit(job)
        await world.in_state(job, "succeeded")
        assert (await world.http.get(f"/v1/jobs/{job}?at={running}")).json()["state"] == "running"
        assert (await world.http.get(f"/v1/jobs/{job}?at={first}")).status_code == 404
        assert (await world.http.get(f"/v1/jobs/{job}?at={first}&until=ended&wait_s=1")).status_code == 422
        document = {"id": "77", "state": "succeeded", "ended_at": rfc3339(world.gateway.views.at_ns)}
        await world.play_telemetry("job", lambda _ask: msgspec.json.encode(document))
        now = world.gateway.views.sequence
        assert (await world.http.get(f"/v1/jobs/77?at={now}")).json() == document
        assert (await world.http.get(f"/v1/jobs/77/why?at={now}")).json()["state"] == "succeeded"
        for path in ("/v1/jobs/77", "/v1/jobs/77/why"):
            assert (await world.http.get(f"{path}?at={first}")).status_code == 404


async def test_the_past_hides_what_one_may_not_see_now() -> None:
    """Rights of now hold: a job that is in another queue now, a queue and a node that are gone, a right that was taken back."""
    async with SignedWorld() as world:
        await world.configure(mine={}, secretqueue={})
        await world.person("mia", member="queue:mine")
        await world.grant("mia", "viewer", "queue:gone")
        await world.configure(mine={}, secretqueue={}, gone={})
        body = {"command": ["true"], "queue": "mine", "resources": gpus(1), "name": "moved"}
        job = (await world.ask("owner", "POST", "/v1/jobs", json=body)).json()["id"]
        then = world.gateway.views.sequence
        assert job in (await world.ask("mia", "GET", f"/v1/jobs?at={then}")).text
        assert (await world.ask("owner", "POST", f"/v1/jobs/{job}:hold")).status_code == 200
        moved = await world.ask("owner", "POST", f"/v1/jobs/{job}:move", json={"queue": "secretqueue"})
        assert moved.status_code == 200, moved.text
        assert (await world.ask("owner", "DELETE", "/v1/queues/gone")).status_code == 200
        assert (await world.get("mia", f"/v1/jobs?at={then}"))["items"] == []
        assert (await world.ask("mia", "GET", f"/v1/jobs/{job}?at={then}")).status_code == 404
        assert (await world.get("owner", f"/v1/jobs/{job}?at={then}"))["queue"] == "mine"
        await world.revoke("mia", "member", "queue:mine")
        for path in ("/v1/jobs", "/v1/queues", "/v1/nodes", "/v1/cluster", "/v1/idle", "/v1/map"):
            answer = await world.ask("mia", "GET", f"{path}?at={then}")
            assert answer.status_code in (200, 403)
            for word in ("moved", "mine", "secretqueue", f'"{job}"', "gone"):
                assert word not in answer.text.replace("Gone", ""), (path, answer.text)
