"""The process for the past next to a gateway: the gateway's answers, byte for byte, from keyframes; and what happens without it."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from fairlead_bus.port import Stored
from fairlead_gateway.sources.historical_views import AT_HEADER
from fairlead_replay.past import documents, keyframe_writer, keyframes, service
from fairlead_replay.past.service import PastSettings
from fairlead_schemas.queries import past as words
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import decode_commit
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.standing import StandingGateway, continued, paths_at
from tests.gateway.world import gpus
from tests.kit.eventually import eventually_async
from tests.replay.past.beside_gateway import running
from tests.replay.worlds import log_of


@pytest.fixture
def messages() -> list[Stored]:
    """A recorded log, long enough for the moments that are named here."""
    return log_of(11, commits_min=250)


@pytest.fixture
def other_log() -> list[Stored]:
    """Another one."""
    return log_of(8)


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keyframes stand close to each other."""
    monkeypatch.setattr(keyframe_writer, "WEIGHT_MAX", 250)
    monkeypatch.setattr(keyframes, "READ_WEIGHT", 0)


async def test_the_process_answers_as_a_gateway_of_then(messages: list[Stored], tmp_path: Path) -> None:
    """Every route, at moments in any order, from keyframes that it has made itself; a gateway passes it on, with headers."""
    async with StandingGateway(messages) as now:
        now.gateway.past._events_max = 1
        async with running(now, tmp_path) as process:
            asked = 0
            for sequence in (125, 60, 61, 110, 90, 134):
                async with StandingGateway(messages[:sequence]) as then:
                    for path in paths_at(then.views):
                        expected = await then.get(path)
                        found = await now.get(path, sequence)
                        assert found.content == expected.content, (path, sequence)
                        assert found.headers["content-type"] == expected.headers["content-type"]
                        assert found.headers[AT_HEADER].startswith(f"{sequence} ")
                        assert found.headers["x-fairlead-sequence"] == str(sequence)
                        asked += 1
            assert now.gateway.past_client.forwarded == process.statistics()["answered"] == asked
    assert process.statistics()["keyframes"] >= 1


async def test_the_process_goes_on_from_its_keyframes(messages: list[Stored], tmp_path: Path) -> None:
    """Another run folds only the tail, and answers the same."""
    keyframe_writer.build(messages[:120], tmp_path, weight_max=250)
    async with StandingGateway(messages) as now, running(now, tmp_path) as process:
        assert process.statistics()["keyframes"] >= 1
        async with StandingGateway(messages[:110]) as then:
            for path in paths_at(then.views):
                assert await now.document(path, 110) == await then.document(path), path


async def test_moments_at_a_keyframe_and_beside_it(messages: list[Stored], tmp_path: Path) -> None:
    """By sequence and by time: the keyframe itself, one commit before it and one behind it."""
    store = keyframe_writer.build(messages, tmp_path, weight_max=250)
    assert store is not None
    async with StandingGateway(messages) as now, running(now, tmp_path):
        for place in store.places[1:3]:
            for sequence in (place.sequence - 1, place.sequence, place.sequence + 1):
                async with StandingGateway(messages[:sequence]) as then:
                    assert await now.document("/v1/cluster", sequence) == await then.document("/v1/cluster")
            at = rfc3339(place.at_ns)[:-1] + f"{place.at_ns // 1000 % 1000:03d}Z"
            found = (await now.get("/v1/cluster", at)).json()["sequence"]
            later = next(each.sequence for each in messages if decode_commit(each.payload).at_ns > place.at_ns - 1000)
            assert found >= later - 1


async def test_refusals_are_those_of_the_gateway(messages: list[Stored], tmp_path: Path) -> None:
    """Moments that cannot be, things that were not there, wrong filters: the same problem documents, except for the id of the request."""
    paths = [
        "/v1/jobs?at=0",
        "/v1/jobs?at=garbage",
        "/v1/jobs?at=99999",
        "/v1/jobs?at=1970-01-02T00:00:00Z",
        "/v1/jobs?at=60&state=nonsense",
        "/v1/nodes/nosuch?at=60",
        "/v1/jobs?at=60&limit=0",
        "/v1/jobs?at=60&continue=xxx",
        "/v1/queues/no/such?at=60",
    ]
    async with StandingGateway(messages) as now:
        alone = [await now.http.get(path) for path in paths]
        async with running(now, tmp_path) as process:
            passed = [await now.http.get(path) for path in paths]
            assert process.statistics()["answered"] == len(paths)
        for one, other in zip(alone, passed, strict=True):
            assert one.status_code == other.status_code >= 400
            assert one.headers["content-type"] == other.headers["content-type"] == "application/problem+json"
            first, second = one.json(), other.json()
            assert first.pop("request_id")
            assert second.pop("request_id")
            assert first == second


async def test_tokens_and_tags_go_along(messages: list[Stored], tmp_path: Path) -> None:
    """A page of the past is continued by its token alone; a client that has a document gets 304."""
    async with StandingGateway(messages) as now, running(now, tmp_path) as process:
        first = (await now.get("/v1/jobs?limit=2", 120)).json()
        second = await now.http.get(f"/v1/jobs?limit=2&continue={first['next']}")
        assert second.headers[AT_HEADER].startswith("120 ")
        assert process.statistics()["answered"] == 2
        tag = (await now.get("/v1/queues", 120)).headers["etag"]
        again = await now.http.get("/v1/queues?at=120", headers={"if-none-match": tag})
        assert (again.status_code, again.content) == (304, b"")
        assert (await now.get("/v1/queues")).status_code == 200
        assert process.statistics()["answered"] == 4, "the present is the gateway's own"


async def test_large_answers_come_in_pieces(
    messages: list[Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compressed where they are long; a piece that is gone makes the gateway ask again, and then fold by itself."""
    monkeypatch.setattr(words, "PIECE_BYTES", 300)
    monkeypatch.setattr(service, "COMPRESS_BYTES", 5_000)
    async with (
        StandingGateway(messages) as now,
        StandingGateway(messages[:125]) as then,
        running(now, tmp_path) as process,
    ):
        for path in ("/v1/cluster", "/v1/jobs?limit=1000", "/v1/breaker"):
            assert await now.document(path, 125) == await then.document(path)
        monkeypatch.setattr(service, "ANSWERS_KEPT", 0)
        asked = process.statistics()["answered"]
        assert await now.document("/v1/cluster", 125) == await then.document("/v1/cluster")
        assert process.statistics()["answered"] - asked == 3
        for piece in (-1, 0, 10**9):
            question = words.PastQuestion(answer="x", piece=piece)
            payload = await now.bus.request(subjects.PAST, words.encode_question(question), timeout_s=1)
            assert words.decode_answer(payload)[0].error == "unknown"


async def test_without_the_process_the_words_say_what_to_start(messages: list[Stored], tmp_path: Path) -> None:
    """Near the log's start the gateway folds; far from it the answer is 503, until the process is there."""
    async with StandingGateway(messages) as now:
        now.gateway.past._events_max = 40
        assert (await now.get("/v1/nodes", 4)).status_code == 200
        answer = await now.get("/v1/nodes", 125)
        assert answer.status_code == 503
        assert "python -m fairlead_replay.past" in answer.json()["hint"]
        async with running(now, tmp_path):
            assert (await now.get("/v1/nodes", 125)).status_code == 200
        assert (await now.get("/v1/nodes", 125)).status_code == 503
        metrics = now.gateway.metrics.text().decode()
        assert 'fairlead_gateway_past_answers_total{by="past"} 1.0' in metrics
        assert 'fairlead_gateway_past_answers_total{by="gateway"} 3.0' in metrics


@pytest.mark.parametrize(
    "payload",
    [b"", b"{}{", b'"x"', b'{"path":7}', b'{"unknown":1}', b"\xff\xfe", b'{"path":"' + b"x" * 9000 + b'"}'],
)
async def test_what_is_no_question_is_refused(messages: list[Stored], tmp_path: Path, payload: bytes) -> None:
    """In words, and the process continues."""
    async with StandingGateway(messages) as now, running(now, tmp_path):
        answer, _ = words.decode_answer(await now.bus.request(subjects.PAST, payload, timeout_s=1))
        assert answer.error == "invalid"
        assert answer.message
        assert (await now.get("/v1/nodes", 125)).status_code == 200


async def test_a_fault_of_the_process_costs_one_answer(
    messages: list[Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway folds by itself at once, and the process answers the next question."""
    async with (
        StandingGateway(messages) as now,
        StandingGateway(messages[:125]) as then,
        running(now, tmp_path) as process,
    ):
        expected = await then.document("/v1/cluster")

        async def broken(_self: documents.PastDocuments, _question: words.PastQuestion) -> None:
            raise RuntimeError("planted")

        with monkeypatch.context() as planted:
            planted.setattr(documents.PastDocuments, "answer", broken)
            async with asyncio.timeout(5):
                assert await now.document("/v1/cluster", 125) == expected
        assert process.statistics()["answered"] == 0
        assert await now.document("/v1/cluster", 125) == expected
        assert process.statistics()["answered"] == 1


async def test_keyframes_of_an_end_that_was_cut_off(messages: list[Stored], tmp_path: Path) -> None:
    """A restored backup continues with another history under the same first commit: what was kept of the old one is never shown."""
    keyframe_writer.build(messages, tmp_path, weight_max=250)
    cut = 80
    more = range(cut + 1, len(messages) + 1)
    events = [ev.QueueConfigured(cause="clock", path=f"other{sequence}") for sequence in more]
    log = continued(messages[:cut], [("queue", 1, event) for event in events])
    async with StandingGateway(log) as now, running(now, tmp_path) as process:
        assert process.live.views.snapshot() == now.views.snapshot()
        for sequence in (cut + 40, 60, *(int(path.stem) for path in _keyframes(tmp_path))):
            async with StandingGateway(log[:sequence]) as then:
                assert await now.document("/v1/cluster", sequence) == await then.document("/v1/cluster")
        for path in _keyframes(tmp_path):
            assert int(path.stem) <= cut or process.statistics()["written"]


def _keyframes(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.keyframe"))


async def test_only_reads_can_be_asked(messages: list[Stored], tmp_path: Path) -> None:
    """Whatever path: the request is a GET, and nothing is written."""
    async with StandingGateway(messages) as now, running(now, tmp_path):
        before = {name: stream.last for name, stream in now.hub.streams.items()}
        for path in ("/v1/jobs/1:cancel", "/v1/queues:apply", "/v1/nope", "/../etc"):
            question = words.PastQuestion(path=path, query="at=60")
            payload = await now.bus.request(subjects.PAST, words.encode_question(question), timeout_s=5)
            assert words.decode_answer(payload)[0].status in (404, 405, 422), path
        assert {name: stream.last for name, stream in now.hub.streams.items()} == before


async def test_a_process_that_is_behind_says_so(messages: list[Stored], tmp_path: Path) -> None:
    """Rights that changed meanwhile count: it answers only once it has folded what the gateway has."""
    async with StandingGateway(messages) as now, running(now, tmp_path) as process:
        question = words.PastQuestion(path="/v1/jobs", query="at=60", sequence=len(messages) + 1)
        payload = await now.bus.request(subjects.PAST, words.encode_question(question), timeout_s=5)
        assert words.decode_answer(payload)[0].error == "behind"
        process.live.caught_up = False
        assert (await now.get("/v1/jobs", 60)).status_code == 200, "the gateway folds by itself"
        assert process.statistics()["answered"] == 0


async def test_a_new_log_gets_keyframes_of_its_own(
    messages: list[Stored], other_log: list[Stored], tmp_path: Path
) -> None:
    """One that was made again after the stream was lost: the keyframes of the old one are not taken up."""
    keyframe_writer.build(other_log, tmp_path, weight_max=250)
    async with StandingGateway(messages) as now, running(now, tmp_path) as process:
        assert process.live.views.snapshot() == now.views.snapshot()
        async with StandingGateway(messages[:90]) as then:
            for path in ("/v1/jobs", "/v1/cluster"):
                assert await now.document(path, 90) == await then.document(path)


async def test_documents_of_the_past_have_login_names_and_the_rights_of_now(tmp_path: Path) -> None:
    """Names as the gateway has them; what a caller may not see now is not shown by the process either."""
    async with SignedWorld() as world:
        await world.configure(mine={}, secretqueue={})
        await world.person("mia", member="queue:mine")
        body = {"command": ["true"], "queue": "mine", "resources": gpus(1), "name": "own"}
        own = (await world.ask("mia", "POST", "/v1/jobs", json=body)).json()["id"]
        hidden = {"command": ["true"], "queue": "secretqueue", "resources": gpus(1), "name": "secretjob"}
        assert (await world.ask("owner", "POST", "/v1/jobs", json=hidden)).status_code == 201
        then = world.gateway.views.sequence
        async with running(world, tmp_path) as process:
            await eventually_async(lambda: process.live.views.sequence >= then)
            for path in ("/v1/jobs", "/v1/queues", "/v1/cluster", f"/v1/jobs/{own}", f"/v1/jobs/{own}/why"):
                answer = await world.ask("mia", "GET", f"{path}?at={then}")
                assert answer.status_code == 200, answer.text
                assert "secret" not in answer.text, path
            assert process.statistics()["answered"] == 5
            assert [each["id"] for each in (await world.get("mia", f"/v1/jobs?at={then}"))["items"]] == [own]
            await world.revoke("mia", "member", "queue:mine")
            assert (await world.ask("mia", "GET", f"/v1/jobs?at={then}")).status_code in (200, 403)
            assert (await world.get("mia", f"/v1/cluster?at={then}"))["queues"] == []
            unsigned = await world.ask("", "GET", f"/v1/jobs?at={then}")
            assert unsigned.status_code == 401


async def test_settings(tmp_path: Path) -> None:
    """The directory and the bound, with words for what is no number."""
    found = PastSettings.from_environment({"FAIRLEAD_PAST_DIR": str(tmp_path), "FAIRLEAD_PAST_MAX_MIB": "0"})
    assert (found.directory, found.bytes_max) == (tmp_path, 0)
    study = PastSettings.from_environment({"FAIRLEAD_WHATIF_MAX_MIB": "512", "FAIRLEAD_WHATIF_MAX_S": "60"})
    assert (study.study_bytes_max, study.study_s) == (512 * 1024**2, 60.0)
    assert PastSettings.from_environment({"FAIRLEAD_DATA": "/x"}).directory == Path("/x/past")
    for text in ("-1", "many", "1e3", "9" * 30, "٣"):
        for name in ("FAIRLEAD_PAST_MAX_MIB", "FAIRLEAD_WHATIF_MAX_MIB", "FAIRLEAD_WHATIF_MAX_S"):
            with pytest.raises(service.BadSetting, match=name):
                PastSettings.from_environment({name: text})


def test_a_caller_is_passed_on_whole() -> None:
    """A new field of a caller that rights depend on must be passed on, too."""
    fields = {field.name for field in msgspec.structs.fields(words.PastCaller)}
    assert fields == {"is_open", "principal", "credential", "is_token", "act_as", "expires_ns"}
    assert documents.EVENTS_MAX > 10 * keyframe_writer.WEIGHT_MAX
