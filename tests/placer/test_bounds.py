"""Commits of the placer at their largest, in the bytes that are really written, and reports that cannot be decided."""

import pytest

import fairlead_placer.decide.reports
from fairlead_bus import streams
from fairlead_bus.core import Input
from fairlead_placer.desired_state import DESIRED_BYTES_MAX, SPECS_INLINE_MAX, OrderBook
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import DrainNode
from fairlead_schemas.wire.commit import COMMIT_BYTES_MAX
from fairlead_schemas.wire.desired import decode_desired
from fairlead_schemas.wire.reports import ExitSeen, Report, ReportBatch, StartSeen
from fairlead_schemas.wire.resources import Gpu, Inventory
from tests.kit.placer_world import SECOND, PlacerWorld, commit_bytes, inventory, request


def machine(name: str) -> Inventory:
    """Eight GPUs with names as long as real ones."""
    gpus = tuple(
        Gpu(uuid=f"GPU-{name:>04}{i:x}-aaaa-bbbb-cccc-dddddddddddd"[:40], index=i, model="A100", memory_mib=40960)
        for i in range(8)
    )
    return Inventory(gpus=gpus, cpu_milli=64_000, memory_mib=512 * 1024, address=f"{name}.cluster.example")


def batch(world: PlacerWorld, node: str, *reports: Report) -> Input:
    """One message of reports, as the source hands it on."""
    incarnation = world.core.state.nodes[node].incarnation
    return Input("report", reports[-1].n, ReportBatch(node=node, incarnation=incarnation, reports=list(reports)))


@pytest.mark.slow
def test_a_gang_of_a_thousand_nodes_travels_alone_and_fits_a_message() -> None:
    """Eight thousand GPUs are named in one event, which shares its commit with nothing."""
    world = PlacerWorld()
    world.joined({f"node-{number:04}": machine(f"n{number:04}") for number in range(1000)})
    world.fold("queue", list(world.submitted(request(1))))
    world.fold("queue", list(world.submitted(request(8, nodes=999))))
    commits: list[list[ev.Event]] = []
    while (decision := world.core.decide([], world.now)).events:
        commits.append(decision.events)
        world.fold("placer", decision.events)
    (gang,) = [
        events for events in commits if any(e for e in events if isinstance(e, ev.JobPlaced) and len(e.parts) > 1)
    ]
    assert len(gang) == 1
    assert COMMIT_BYTES_MAX < commit_bytes(gang) < streams.MESSAGE_BYTES_MAX
    assert all(commit_bytes(events) <= COMMIT_BYTES_MAX for events in commits if events is not gang)


def test_ends_with_the_longest_messages_are_spread_over_commits() -> None:
    """A message of control characters takes six bytes a character; all ends are recorded, none in too large a commit."""
    world = PlacerWorld()
    world.joined({"n1": inventory("n1", 0, cpu=400)})
    world.fold("queue", [event for _ in range(400) for event in world.submitted(request(0))])
    world.step()
    ends = [
        ExitSeen(n=n, job=str(n), attempt=1, rank=0, outcome="exited", exit_code=1, message="\x01" * 1000, clean=True)
        for n in range(1, 401)
    ]
    left = ends
    while left:
        decision = world.decide(batch(world, "n1", *left[:200]), batch(world, "n1", *left[200:400] or left[-1:]))
        assert commit_bytes(decision.events) <= COMMIT_BYTES_MAX
        world.fold("placer", decision.events, decision.cursors)
        left = [end for end in ends if end.n > world.core.state.nodes["n1"].reported]
    assert not world.core.state.runs


def test_a_deadline_beyond_all_numbers_is_none() -> None:
    """Added to the time it could not be written; the drain counts."""
    world = PlacerWorld()
    world.joined({"n1": inventory("n1")})
    decision = world.decide(Input("CMD", 1, [DrainNode(id="c", node="n1", deadline_ns=2**64 - 1)]))
    assert commit_bytes(decision.events)
    (event, *_) = decision.events
    assert isinstance(event, ev.NodeDraining) and event.deadline_ns == 0


@pytest.mark.slow
def test_a_nodes_value_stays_within_its_bound_and_the_newest_orders_wait() -> None:
    """An order once written stays while newer ones arrive; the newer ones follow as old ones leave."""
    world = PlacerWorld()
    world.joined({"n1": inventory("n1", 0, cpu=4000, memory_gib=4096)})
    count, book, told = 4000, OrderBook(), list[str]()
    long = b'{"command":["' + b"x" * 3000 + b'"]}'
    for _ in range(0, count, 200):
        world.fold("queue", [event for _ in range(200) for event in world.submitted(request(0), spec=long)])
        world.step()
        value = book.desired(world.core.state, world.core.state.nodes["n1"])
        assert len(value) <= DESIRED_BYTES_MAX + 1024
        jobs = [run.job for run in decode_desired(value).runs]
        assert jobs[: len(told)] == told
        told = jobs
    assert SPECS_INLINE_MAX < len(told) < count
    ends = [
        ExitSeen(n=n, job=str(n), attempt=1, rank=0, outcome="exited", exit_code=0, clean=True) for n in range(1, 101)
    ]
    world.step(batch(world, "n1", *ends))
    runs = [run.job for run in decode_desired(book.desired(world.core.state, world.core.state.nodes["n1"])).runs]
    kept = [job for job in told if int(job) > 100]
    assert runs[: len(kept)] == kept
    assert len(kept) + 90 < len(runs) <= len(told), "of the new ones with their longer ids a few less have room"


def test_an_undecodable_report_is_skipped_and_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is consumed and it is recorded: otherwise it would block all later reports of the node."""
    world = PlacerWorld()
    world.joined({"n1": inventory("n1")})
    world.fold("queue", list(world.submitted(request(1))))
    world.step()
    whole = batch(world, "n1", StartSeen(n=1, job="1", attempt=1, rank=0), StartSeen(n=2, job="bad", attempt=1, rank=0))
    rules = fairlead_placer.decide.reports._run_of

    def frail(draft: object, node: object, report: StartSeen, cause: str) -> object:
        if report.job == "bad":
            raise KeyError("bad")
        return rules(draft, node, report, cause)  # type: ignore[arg-type] -- passed through

    monkeypatch.setattr(fairlead_placer.decide.reports, "_run_of", frail)
    before = world.core.snapshot()
    with pytest.raises(KeyError):
        world.core.decide([whole], world.now)
    assert world.core.snapshot() == before, "what was tried is taken back"
    good, bad = world.core.split(whole)
    world.step(good)
    decision = world.core.reject(bad, "cannot be decided", world.now)
    (event,) = decision.events
    assert isinstance(event, ev.ReportRejected) and (event.code, event.cause) == ("not_decidable", "report:n1:2")
    world.fold("placer", decision.events, decision.cursors)
    world.now += SECOND
    world.step(batch(world, "n1", ExitSeen(n=3, job="1", attempt=1, rank=0, outcome="exited", exit_code=0, clean=True)))
    assert not world.core.state.runs
