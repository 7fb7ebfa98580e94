"""What-if over HTTP: a study is played in a process of its own, one at a time, within bounds, can be ended, and shows each reader
what it may see."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.render.whatif_report import report
from fairlead_bus.port import Stored
from fairlead_replay.export import encode_line
from fairlead_replay.past import service, studies
from fairlead_replay.whatif import worker
from fairlead_replay.whatif.documents import FIDELITY_TOTALS, StudyReader, shown, whole_document
from fairlead_replay.whatif.overlay import read_overlay
from fairlead_replay.whatif.record import record_of
from fairlead_replay.whatif.report_page import page
from fairlead_replay.whatif.study import run_study
from fairlead_schemas.queries import past as words
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.standing import StandingGateway
from tests.gateway.world import gpus
from tests.kit.eventually import eventually_async
from tests.replay.past.beside_gateway import running
from tests.replay.whatif.scenes import Scene, queues, shared_hour

CHANGE = {"queues": {"a": {"maximum": {"nvidia.com/gpu": 4}}}}


def log_of_two_queues(until_s: float = 400) -> list[Stored]:
    """Return the log of twelve jobs of two users on two nodes."""
    scene = Scene()
    scene.command(-1, queues())
    for n in range(12):
        scene.submit(n * 3, 4, 20, name=f"work-{n}", user=("ann", "bob")[n % 2], queue="ab"[n % 2])
    return scene.play(until_s)[0]


async def order(gateway: StandingGateway, **wish: Any) -> Any:
    """POST a study."""
    return await gateway.http.post("/v1/whatif", json={"change": CHANGE, "seeds": 0, **wish})


async def over(gateway: Any, name: str, **query: Any) -> dict[str, Any]:
    """Return a study once nothing about it changes any more."""
    async with asyncio.timeout(60):
        while True:
            found = (await gateway.http.get(f"/v1/whatif/{name}", params=query)).json()
            if found["state"] in ("done", "failed", "cancelled"):
                return found
            await asyncio.sleep(0.05)


async def progress(gateway: StandingGateway, name: str) -> list[tuple[str, Any]]:
    """Return (event, data) of the whole watch of a study."""
    found: list[tuple[str, Any]] = []
    async with gateway.http.stream("GET", f"/v1/whatif/{name}/progress") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        event = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                found.append((event, msgspec.json.decode(line[6:])))
    return found


async def test_a_study_is_ordered_watched_and_read(tmp_path: Path) -> None:
    """202 with its address; the watch ends with the study; the findings are those of the command line, grade first."""
    async with StandingGateway(log_of_two_queues()) as now, running(now, tmp_path):
        answer = await order(now, seeds=3)
        assert answer.status_code == 202
        name = answer.json()["id"]
        assert answer.headers["location"] == f"/v1/whatif/{name}"
        seen = await progress(now, name)
        assert [event for event, _ in seen][-1] == "end"
        assert seen[-1][1] == {"reason": "done"}
        last = seen[-2][1]
        assert (last["state"], last["plays_done"], last["plays"], last.get("study")) == ("done", 8, 8, None)
        found = (await now.http.get(f"/v1/whatif/{name}")).json()
        study = found["study"]
        assert (study["grade"], study["withheld"], study["seeds"]) == ("A", False, 3)
        assert {
            each["name"] for each in study["effects"] if each["kind"] == "queue" and each["verdict"] == "worse"
        } == {"a"}
        assert study["losers"]


async def test_a_wrong_order_is_refused_before_it_waits(tmp_path: Path) -> None:
    """With the field of the body, what was expected and what was found; and in the answer where only the log can tell."""
    async with StandingGateway(log_of_two_queues()) as now, running(now, tmp_path):
        for wish, field in (
            ({"change": {"queuez": {}}}, "change.queuez"),
            ({"change": {}}, "change"),
            ({"change": {"nodes": {"add": [{"count": 1}]}}}, "change.nodes.add[0].like"),
            ({"from": "yesterday"}, "from"),
            ({"from": "2023-11-14T22:14:10"}, "from"),
            ({"from": "2023-11-14T22:14:10Z", "to": "2023-11-14T22:14:10Z"}, "to"),
            ({"grid": "soon"}, "grid"),
            ({"seeds": 65}, "seeds"),
            ({"users": "some"}, "users"),
            ({"chance": {}}, "chance"),
        ):
            answer = await order(now, **wish)
            assert answer.status_code == 422, (wish, answer.text)
            assert answer.json()["errors"][0]["field"] == field, answer.text
            assert answer.json()["errors"][0]["message"]
        for wish, told in (
            ({"change": {"queues": {"c": {"weight": 2}}}}, "queues.c: expected a queue of the window (a, b)"),
            ({"from": "2001-01-01T00:00:00Z"}, "from: expected a time from the log's first commit on"),
            ({"change": {"sequencer": "nosuch"}}, "cannot be played: the change was refused"),
        ):
            found = await over(now, (await order(now, **wish)).json()["id"])
            assert found["state"] == "failed"
            assert told in found["message"]
        assert (await now.http.get("/v1/whatif/nosuch")).status_code == 404
        assert (await now.http.get("/v1/whatif/deadbeef-1")).status_code == 404


async def test_one_runs_at_a_time_others_wait_and_each_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is bounded; who is taken out of it never runs; the process of one that is ended is gone at once."""
    monkeypatch.setattr(studies, "WAITING_MAX", 2)
    async with StandingGateway(log_of_two_queues()) as now, running(now, tmp_path):
        names = [(await order(now, seeds=64)).json()["id"]]
        await eventually_async(lambda: bool(workers()))
        names += [(await order(now)).json()["id"] for _ in range(2)]
        refused = await order(now)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:fairlead:problem:busy")
        assert refused.headers["retry-after"] == "30"
        waiting = [(await now.http.get(f"/v1/whatif/{name}")).json() for name in names[1:]]
        assert [(each["state"], each["ahead"]) for each in waiting] == [("queued", 1), ("queued", 2)]
        assert len(workers()) == 1
        ended = await now.http.delete(f"/v1/whatif/{names[1]}")
        assert (ended.status_code, ended.json()["state"]) == (200, "cancelled")
        await now.http.delete(f"/v1/whatif/{names[0]}")
        assert (await over(now, names[0]))["state"] == "cancelled"
        assert (await over(now, names[2]))["state"] == "done"
        again = await now.http.delete(f"/v1/whatif/{names[2]}")
        assert again.json()["state"] == "done", "what is over stays as it is"
    assert not workers()


def workers() -> list[int]:
    """Return the processes below this one that play."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if worker.__name__.encode() in line and parent == os.getpid():
                found.append(int(entry.name))
    return found


async def test_memory_and_time_are_bounded(tmp_path: Path) -> None:
    """The words name the bound and the setting; the next study is played."""
    change = {"queues": {"research": {"maximum": {"nvidia.com/gpu": 8}}}}
    async with StandingGateway(shared_hour(until_s=2500)) as now:  # more than a process has at hand once it is loaded
        async with running(now, tmp_path, study_bytes_max=40 * 1024**2):
            found = await over(now, (await order(now, change=change, seeds=3)).json()["id"])
            assert found["state"] == "failed"
            assert "it needs more than 40 MiB of memory" in found["message"]
        async with running(now, tmp_path, study_s=0.01):
            found = await over(now, (await order(now)).json()["id"])
            assert "it takes longer than 0.01 s" in found["message"]
        async with running(now, tmp_path, study_s=0.0):
            assert (await order(now)).json()["type"] == "urn:fairlead:problem:whatif_off"
        assert (await order(now)).json()["type"] == "urn:fairlead:problem:past_away"


async def test_a_killed_worker_fails_its_study(tmp_path: Path) -> None:
    """Killed from outside: the study has failed, and the next one is played."""
    async with StandingGateway(log_of_two_queues()) as now, running(now, tmp_path):
        name = (await order(now, seeds=64)).json()["id"]
        await eventually_async(lambda: bool(workers()))
        os.kill(workers()[0], 9)
        found = await over(now, name)
        assert (found["state"], found["message"].split(":")[0]) == ("failed", "its process was ended by signal 9")
        assert (await over(now, (await order(now)).json()["id"]))["state"] == "done"


async def test_a_study_that_is_held_is_ended_by_its_time(tmp_path: Path) -> None:
    """A stopped process hears no signal but the last one."""
    async with StandingGateway(log_of_two_queues()) as now, running(now, tmp_path, study_s=4.0):
        name = (await order(now, seeds=64)).json()["id"]
        await eventually_async(lambda: bool(workers()))
        os.kill(workers()[0], signal.SIGSTOP)
        found = await over(now, name)
        assert (found["state"], "longer than 4 s" in found["message"]) == ("failed", True)
        assert not workers()


def test_a_worker_ends_when_its_input_closes() -> None:
    """The process for the past may be killed: no process plays on."""
    lines = [worker.encode_order(worker.StudyOrder(change=CHANGE, seeds=64)), *map(encode_line, log_of_two_queues())]
    process = subprocess.Popen(
        [sys.executable, "-m", worker.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"".join([*lines, worker.END]))
    process.stdin.flush()
    assert worker.decode_word(process.stdout.readline()).state == "playing"
    process.stdin.close()
    assert process.wait(30) == 3
    process.stdout.close()


@pytest.mark.parametrize("name", ["*-1", "%3E-1", "deadbee.-1", "deadbeef-*", "deadbeef-١", "deadbeef-", "d" * 500])
async def test_an_invalid_name_is_not_found(tmp_path: Path, name: str) -> None:
    """Names become subjects of the bus: a wildcard would reach others."""
    async with StandingGateway(log_of_two_queues()[:5]) as now:
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/progress")):
            found = await now.http.request(method, f"/v1/whatif/{name}{path}")
            assert (found.status_code, found.json()["type"]) == (404, "urn:fairlead:problem:unknown_whatif"), found.text


async def test_a_damaged_log_fails_the_study(tmp_path: Path) -> None:
    """With the sequence."""
    messages = log_of_two_queues()
    async with StandingGateway(messages) as now, running(now, tmp_path):
        stream = now.hub.streams["LOG"].messages
        old = stream[30]
        stream[30] = Stored(old.sequence, old.subject, old.payload.replace(b'"at_ns":1', b'"at_ns":2'))
        found = await over(now, (await order(now)).json()["id"])
    assert found["state"] == "failed"
    assert found["message"].startswith("DAMAGED: ")
    assert found["study"] is None


async def test_findings_that_no_message_holds_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same."""
    async with StandingGateway(log_of_two_queues()) as now, running(now, tmp_path):
        name = (await order(now)).json()["id"]
        whole = await over(now, name)
        monkeypatch.setattr(words, "PIECE_BYTES", 400)
        monkeypatch.setattr(service, "COMPRESS_BYTES", 1000)
        assert (await now.http.get(f"/v1/whatif/{name}")).json() == whole


# ---------------------------------------------------------------------------- who may


async def test_a_member_sees_own_rows_and_totals_of_others(tmp_path: Path) -> None:
    """And no study of others; an admin sees every one. Names are those of people, as everywhere."""
    async with SignedWorld() as world:
        node = await world.node("n1", 4)
        await world.configure(lab={}, other={})
        await world.person("ann", member="queue:lab")
        await world.person("bob", member="queue:other")
        await world.person("eve")
        for n in range(3):
            for name, queue in (("ann", "lab"), ("bob", "other")):
                job = {"name": f"{name}-{n}", "queue": queue, "command": ["true"], "resources": gpus(2)}
                answer = await world.ask(name, "POST", "/v1/jobs", json=job)
                assert answer.status_code == 201, answer.text
                id_ = answer.json()["id"]
                await world.in_state(id_, "placed")
                await node.start(id_)
                await world.in_state(id_, "running")
                await node.exit(id_)
                await world.in_state(id_, "succeeded")
        limit = {"maximum": {"nvidia.com/gpu": 1}}
        wish = {"change": {"queues": {"lab": limit, "other": limit}}, "seeds": 0}
        async with running(world, tmp_path):
            assert (await world.ask("eve", "POST", "/v1/whatif", json=wish)).status_code == 403
            answer = await world.ask("ann", "POST", "/v1/whatif", json=wish)
            assert answer.status_code == 202, answer.text
            path = f"/v1/whatif/{answer.json()['id']}"
            for method, address in (("GET", path), ("DELETE", path), ("GET", f"{path}/progress")):
                assert (await world.ask("bob", method, address)).status_code == 404
            await over(world, answer.json()["id"])
            own = await world.get("ann", path, params={"even_so": "true"})
            whole = (await world.http.get(path, params={"even_so": "true"})).json()["study"]
        assert own["state"] == "done", own
        names = {each["name"] for each in whole["effects"] if each["kind"] == "user"}
        assert names == {"ann", "bob"}
        assert {each["user"] for each in whole["losers"]} == {"ann", "bob"}
        study = own["study"]
        assert {each["user"] for each in study["losers"] if "user" in each} == {"ann"}
        assert {each["name"] for each in study["effects"] if each["kind"] == "user"} == {"ann"}
        assert "bob" not in str(study)


def test_others_are_totals_for_those_who_may_see_totals() -> None:
    """One row for all of them; without that right there is no number about everybody."""
    scene = Scene()
    scene.command(-1, queues())
    for n in range(12):
        scene.submit(n * 3, 4, 20, name=f"secret-{n}", user=("ann", "bob")[n % 2], queue="ab"[n % 2])
    study = run_study(
        record_of(scene.play(400)[0]), read_overlay({"queues": {"a": {"maximum": {"nvidia.com/gpu": 4}}}}), seeds=0
    )
    whole = whole_document(study)

    def reader(**more: Any) -> StudyReader:
        return StudyReader(
            job=lambda row: row["user"] == "ann",
            user=lambda user: user == "ann",
            queue=lambda path: path == "a",
            words=lambda text: text.replace("bob", "(hidden)"),
            **more,
        )

    some = shown(whole, reader())
    rows = [*some["winners"], *some["losers"]]
    assert sum(each.get("others", 0) for each in rows) > 0
    assert "bob" not in str(some)
    assert some["fidelity"]["real_gpu_h"] > 0
    none = shown(whole, reader(totals=False))
    assert not any("others" in each for each in [*none["winners"], *none["losers"]])
    assert {none["fidelity"][name] for name in FIDELITY_TOTALS} == {None}
    assert {each["kind"] for each in none["effects"]} == {"queue", "user"}
    assert {each["queue"] for each in none["fidelity"]["queues"]} == {"a"}
    assert none["events"] == {}
    for found in (some, none):
        assert "secret-1'" not in str(found)
        assert page(found).startswith("<!doctype html>")
        assert report(found).startswith("grade ")
