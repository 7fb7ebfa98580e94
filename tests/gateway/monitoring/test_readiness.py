"""`/readyz`: true only while jobs are accepted and run, and otherwise the reason and a command."""

import pytest

from fairlead_bus.port import OutcomeUnknown
from fairlead_gateway.monitoring import probes, readiness
from fairlead_gateway.monitoring.readiness import OTHERS, SILENT_S, STALLED_S, WRITERS, LogStatus, ReadinessEvidence
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import Alive, Condition, Scrubbed
from tests.gateway.gatehouse import Gatehouse
from tests.gateway.world import GatewayWorld
from tests.kit.eventually import eventually_async

WELL = LogStatus(bus=True, near_end=True, has_room=True, sequence=7, log_end=7)


def well(now: float) -> ReadinessEvidence:
    """All services have answered, and a command was stored, at this time."""
    evidence = ReadinessEvidence(now)
    for name in (*WRITERS, *OTHERS):
        evidence.answered(name, Alive(sequence=7), now, log_end=7)
        evidence.leased(name, now)
    evidence.stored(now)
    return evidence


def codes(evidence: ReadinessEvidence, now: float, facts: LogStatus = WELL) -> list[str]:
    return [each.code for each in evidence.conditions(facts, now)]


def test_nothing_counts_as_well_before_it_has_answered() -> None:
    """At the gateway's start no service has shown life and no command was stored."""
    expected = [
        "commands_refused",
        "queue_silent",
        "placer_silent",
        "access_silent",
        "storage_silent",
        "telemetry_silent",
        "explainer_silent",
    ]
    assert codes(ReadinessEvidence(0.0), 0.0) == expected
    assert codes(well(0.0), 0.0) == []


@pytest.mark.parametrize("name", [*WRITERS, *OTHERS])
def test_a_service_that_answers_no_more_is_silent(name: str) -> None:
    """After SILENT_S, not before: a restart is no outage. The message says for how long."""
    evidence, later = well(0.0), SILENT_S + 0.5
    for other in {*WRITERS, *OTHERS} - {name}:
        evidence.answered(other, Alive(sequence=7), later, log_end=7)
        evidence.leased(other, later)
    assert codes(evidence, SILENT_S) == []
    (found,) = evidence.conditions(WELL, later)
    assert (found.code, found.message) == (f"{name}_silent", f"{name} has not answered for 10 s")
    assert found.blocks == (name in WRITERS)


def test_an_answer_without_the_lease_is_not_enough() -> None:
    """A service that lost its lease will be succeeded; it decides nothing for long."""
    evidence, later = well(0.0), SILENT_S + 0.5
    for name in (*WRITERS, *OTHERS):
        evidence.answered(name, Alive(sequence=7), later, log_end=7)
    evidence.leased("placer", later)
    assert [(each.code, each.message) for each in evidence.conditions(WELL, later)] == [
        ("queue_silent", "queue holds no lease for 10 s")
    ]


def test_a_refused_commit_is_reported_with_its_reason() -> None:
    """The service lives, and nothing is decided."""
    evidence = well(0.0)
    evidence.answered("queue", Alive(sequence=7, refused="no answer within 5 s"), 1.0, log_end=7)
    (found,) = evidence.conditions(WELL, 1.0)
    assert found.code == "queue_stalled"
    assert "no answer within 5 s" in found.message


def test_a_fold_that_does_not_advance_is_stalled() -> None:
    """A fold that advances, however far behind, is not stalled, and one at the end of an idle log is not."""
    evidence, now = well(0.0), 0.0
    while now < 2 * STALLED_S:
        now += 1.0
        evidence.answered("queue", Alive(sequence=7), now, log_end=900)
        evidence.answered("placer", Alive(sequence=7 + int(now)), now, log_end=900)
        for name in OTHERS:
            evidence.answered(name, Alive(sequence=0), now, log_end=0)
        for name in WRITERS:
            evidence.leased(name, now)
    assert codes(evidence, now) == ["queue_stalled"]


def test_refused_commands_are_a_condition_until_one_is_stored() -> None:
    """With the server's words; a full stream is another condition than a server that does not answer."""
    evidence = well(0.0)
    evidence.not_stored("no answer on fairlead.cmd.queue within 5 s")
    assert [each.message for each in evidence.conditions(WELL, 1.0)] == ["no answer on fairlead.cmd.queue within 5 s"]
    assert codes(evidence, 1.0) == ["commands_refused"]
    evidence.not_stored("maximum bytes exceeded", is_full=True)
    assert codes(evidence, 1.0) == ["commands_full"]
    evidence.stored(2.0)
    assert codes(evidence, 2.0) == []


def test_the_gateways_own_view_counts() -> None:
    """Behind the log, or a full log; with the server away nothing else is known or reported."""
    assert codes(well(0.0), 0.0, WELL._replace(near_end=False)) == ["views_behind"]
    assert codes(well(0.0), 0.0, WELL._replace(has_room=False)) == ["log_full"]
    assert codes(ReadinessEvidence(0.0), 99.0, WELL._replace(bus=False)) == ["bus_away"]


# ------------------------------------------------------------------------------- over HTTP, with real services


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short times for the tests with services; those of the pure tests are the defaults, imported above."""
    monkeypatch.setattr(probes, "ROUND_S", 0.02)
    monkeypatch.setattr(probes, "ROUND_UNREADY_S", 0.02)


async def test_ready_once_queue_and_placer_have_answered() -> None:
    """With both, 200; access, storage, telemetry and explainer are named where they are missing, and block nothing."""
    async with GatewayWorld() as world:
        await eventually_async(lambda: world.gateway.readiness().ready)
        answer = await world.http.get("/readyz")
        assert answer.status_code == 200
        silent = ["access_silent", "storage_silent", "telemetry_silent", "explainer_silent"]
        assert [each["code"] for each in answer.json()["conditions"]] == silent
        text = (await world.http.get("/metrics")).text
        assert "fairlead_ready 1.0" in text
        assert 'fairlead_condition{condition="queue_silent"} 0.0' in text
        assert 'fairlead_condition{condition="explainer_silent"} 1.0' in text


async def test_not_ready_while_no_queue_and_placer_run() -> None:
    """The gateway alone has a bus and its views, and accepts nothing that would ever be decided."""
    async with Gatehouse() as house:
        await eventually_async(
            lambda: house.gateway.folding.is_near_end and house.gateway.pulse.evidence.stored_since(0.0)
        )
        answer = await house.http.get("/readyz")
        assert answer.status_code == 503
        held = [Condition(**each) for each in answer.json()["conditions"]]
        assert [each.code for each in held if each.blocks] == ["queue_silent", "placer_silent"]
        assert answer.json()["remedies"] == {each.code: each.hint() for each in held}
        assert "fairlead_ready 0.0" in (await house.http.get("/metrics")).text


async def test_a_queue_that_ends_makes_it_unready(monkeypatch: pytest.MonkeyPatch) -> None:
    """While gateway and bus are well."""
    monkeypatch.setattr(readiness, "SILENT_S", 0.2)
    async with GatewayWorld() as world:
        await eventually_async(lambda: world.gateway.readiness().ready)
        await world.services[0].stop()
        await eventually_async(lambda: not world.gateway.readiness().ready)
        assert (await world.http.get("/readyz")).json()["conditions"][0]["code"] == "queue_silent"


async def test_an_idle_gateway_notices_a_server_that_does_not_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without submits the gateway's own empty command finds it; the next stored one ends the condition."""
    monkeypatch.setattr(probes, "IDLE_S", 0.05)
    async with GatewayWorld() as world:
        await eventually_async(lambda: world.gateway.readiness().ready)
        stored = world.bus.append

        async def refuse(*_: object, **__: object) -> int:
            raise OutcomeUnknown("fairlead.cmd.probe: no space left on device (10077)")

        monkeypatch.setattr(world.bus, "append", refuse)
        await eventually_async(lambda: not world.gateway.readiness().ready)
        (found, *_) = (await world.http.get("/readyz")).json()["conditions"]
        assert (found["code"], "no space left" in found["message"]) == ("commands_refused", True)
        monkeypatch.setattr(world.bus, "append", stored)
        await eventually_async(lambda: world.gateway.readiness().ready)


async def test_a_submit_that_is_not_stored_makes_it_unready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway's own publishing counts at once, without waiting for a probe."""
    async with GatewayWorld(decision_wait_s=0.05) as world:
        await eventually_async(lambda: world.gateway.readiness().ready)

        async def refuse(*_: object, **__: object) -> int:
            raise OutcomeUnknown("fairlead.cmd.queue: no answer within 5 s")

        monkeypatch.setattr(world.bus, "append", refuse)
        assert (await world.http.post("/v1/jobs", json={"command": ["true"]})).status_code == 503
        assert (await world.http.get("/readyz")).status_code == 503


async def test_probes_are_no_commands() -> None:
    """A probe is in CMD under a name that no service reads."""
    async with GatewayWorld() as world:
        await eventually_async(lambda: world.gateway.pulse.evidence.stored_since(0.0))
        before = [each.subject for each in world.hub.streams[subjects.CMD].messages]
        assert subjects.cmd(probes.PROBE_USER) in before
        assert world.commands_stored() == 0
        await world.submit()
        assert world.commands_stored() == 1


def test_damage_that_the_scrub_found_comes_first() -> None:
    """It blocks, with the scrub's own words."""
    evidence = well(0.0)
    evidence.not_stored("no answer")
    found = Scrubbed(passes=3, end=900, damaged=42, reason="log sequence 42: the commit is gone")
    evidence.answered("explainer", Alive(sequence=0, scrub=found), 1.0, log_end=7)
    first, _ = evidence.conditions(WELL, 1.0)
    assert (first.code, first.message, first.blocks) == ("log_damaged", found.reason, True)


async def test_the_scrub_is_part_of_the_answer() -> None:
    """A missing commit makes /readyz false, though every service works; the scrub's progress is in it, too."""
    async with GatewayWorld() as world:
        await world.submit()
        await world.start_explainer()
        await eventually_async(lambda: (scrub := world.gateway.readiness().scrub) is not None and scrub.passes > 0)
        assert (await world.http.get("/readyz")).json()["scrub"]["damaged"] == 0
        assert "fairlead_scrub_damaged_sequence 0.0" in (await world.http.get("/metrics")).text


async def test_a_commit_that_is_gone_makes_it_unready() -> None:
    """Found by the scrub alone: queue, placer and gateway have read past it."""
    async with GatewayWorld() as world:
        await world.submit()
        await eventually_async(lambda: world.gateway.readiness().ready)
        world.hub.remove(subjects.LOG, 2)
        await world.start_explainer()
        await eventually_async(lambda: not world.gateway.readiness().ready)
        (first, *_) = (await world.http.get("/readyz")).json()["conditions"]
        assert (first["code"], "gap" in first["message"]) == ("log_damaged", True)
        assert "fairlead_scrub_damaged_sequence 2.0" in (await world.http.get("/metrics")).text


def test_a_clock_that_was_set_or_differs_is_reported_and_blocks_nothing() -> None:
    """For each service that stamps commits, with the difference and the clock of comparison."""
    evidence = well(0.0)
    evidence.answered("queue", Alive(sequence=7, clock_lag_ms=3_600_000), 1.0, log_end=7)
    evidence.answered("placer", Alive(sequence=7, clock_lag_ms=-6_000), 1.0, log_end=7)
    evidence.answered("telemetry", Alive(sequence=7, clock="the bus's server is +9.0 s from it"), 1.0, log_end=7)
    found = evidence.conditions(WELL, 1.0)
    assert [(each.code, each.message, each.blocks) for each in found] == [
        ("clock_stepped", "queue: its machine's clock is 3600 s ahead of log time, which creeps to it", False),
        ("clock_stepped", "placer: its machine's clock is 6 s behind log time, which creeps to it", False),
        ("clock_differs", "telemetry: the bus's server is +9.0 s from it (compared with its machine's clock)", False),
    ]
    evidence.answered("queue", Alive(sequence=7, clock_lag_ms=5_000), 2.0, log_end=7)
    assert codes(evidence, 2.0) == ["clock_stepped", "clock_differs"]
