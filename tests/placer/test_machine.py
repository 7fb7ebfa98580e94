"""A random cluster against its invariants: nodes, pools, offers, nodes that are kept, runs that yield, reports
(doubled, missing, false), loss, return, drains.

After every step the invariants hold, deciding has left the state as it was (see `PlacerWorld.decide`), and the snapshot
restores to itself. At the end everything heals and every job that fits has run.
"""

import random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairlead_bus.core import Input
from fairlead_placer.core import PlacerCore
from fairlead_placer.invariants import check
from fairlead_schemas.queuefile.settings import PACKINGS, POOL_LABEL, Packing, PoolSettings
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import (
    CancelMaintenance,
    CancelRollout,
    CordonNode,
    DrainNode,
    FinishRolloutNode,
    PauseRollout,
    QuarantineNode,
    ResetBreaker,
    RestoreGpu,
    ResumeRollout,
    ScheduleMaintenance,
    StartRollout,
    TaintNode,
    UncordonNode,
    UnquarantineNode,
    UntaintNode,
)
from fairlead_schemas.wire.reports import CleanSeen, ExitSeen, HealthSeen, InventorySeen, Report, ReportBatch, StartSeen
from fairlead_schemas.wire.resources import Inventory
from tests.kit.placer_world import SECOND, PlacerWorld, inventory, request

NODES = ("a", "b", "c", "d")
node_names = st.sampled_from(NODES)
pools = st.sampled_from(["", "", "", "big"])


def stock(node: str, gpus: int, pool: str) -> Inventory:
    """A small machine of a pool."""
    return inventory(node, gpus, cpu=8, memory_gib=8, labels={POOL_LABEL: pool} if pool else {})


class Agent:
    """A node's agent with its journal: all its reports, its running ranks and those to clean."""

    def __init__(self, incarnation: str, boot: str, gpus: int) -> None:
        self.incarnation = incarnation
        self.reports: list[Report] = []
        self.running: set[tuple[str, int, int]] = set()
        self.dirty: set[tuple[str, int, int]] = set()
        self.boot = boot
        self.gpus = gpus

    def add(self, report: Report) -> None:
        self.reports.append(msgspec.structs.replace(report, n=len(self.reports) + 1))

    def message(self, node: str, first: int, count: int) -> Input:
        reports = self.reports[first : first + count]
        return Input("report", 0, ReportBatch(node=node, incarnation=self.incarnation, reports=reports))


class PlacerMachine(RuleBasedStateMachine):
    """Rules are what the world may do; the model is the set of jobs and their agents' journals."""

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.world = PlacerWorld(keeper=PlacerCore())
        self.random = random.Random(seed)
        self.agents: dict[str, Agent] = {}
        self.incarnations = 0
        self.starts: set[tuple[str, int]] = set()
        self.ended: set[tuple[str, int]] = set()
        #: Jobs whose end the queue has answered: it offers them no more.
        self.settled: set[str] = set()
        for node in NODES[: seed % 4]:  # a full little cluster, in which others wait
            self.new_journal(node, 2, "", False)
            self.offer(1 + seed % 2, 1 + seed % 3 // 2, 1, "")

    def absorb(self, events: list[ev.Event]) -> None:
        """I4: an attempt is authorised once and ends once. The agents learn what is placed on them."""
        for event in events:
            if isinstance(event, ev.JobPlaced):
                key = (event.job, event.attempt)
                assert key not in self.starts, f"{key} authorised twice"
                self.starts.add(key)
                assert len({part.node for part in event.parts}) == len(event.parts)
                for rank, part in enumerate(event.parts):
                    self.agents[part.node].running.add((event.job, event.attempt, rank))
            elif isinstance(event, ev.RunEnded):
                key = (event.job, event.attempt)
                assert key not in self.ended, f"{key} ended twice"
                self.ended.add(key)
            elif isinstance(event, ev.PreemptionStarted):
                key = (event.job, event.attempt)
                assert key in self.starts - self.ended, f"{key} is asked to yield, and does not run"

    def send(self, node: str, count: int = 1000) -> None:
        agent = self.agents[node]
        known = self.world.core.state.nodes.get(node)
        first = known.reported if known is not None and known.incarnation == agent.incarnation else 0
        self.absorb(self.world.step(agent.message(node, first, count)))

    @rule(node=node_names, gpus=st.sampled_from([0, 1, 2, 8]), pool=pools, rebooted=st.booleans())
    def new_journal(self, node: str, gpus: int, pool: str, rebooted: bool) -> None:
        self.incarnations += 1
        boot = f"boot-{self.incarnations}" if rebooted else "boot-0"
        agent = self.agents[node] = Agent(f"{node}-{self.incarnations}", boot, gpus)
        agent.add(InventorySeen(n=0, boot_id=boot, inventory=stock(node, gpus, pool)))
        self.send(node)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), rebooted=st.booleans(), gpus=st.sampled_from([0, 2, 8]), pool=pools)
    def restart(self, data: st.DataObject, rebooted: bool, gpus: int, pool: str) -> None:
        node = data.draw(st.sampled_from(sorted(self.agents)))
        agent = self.agents[node]
        if rebooted:
            self.incarnations += 1
            agent.boot = f"boot-{self.incarnations}"
            agent.running.clear()
            agent.dirty.clear()
        agent.gpus = gpus
        agent.add(InventorySeen(n=0, boot_id=agent.boot, inventory=stock(node, gpus, pool)))
        self.send(node)

    @rule(
        gpus=st.sampled_from([0, 1, 1, 2, 2, 2, 5, 8]),
        nodes=st.integers(1, 3),
        cpu=st.integers(0, 4),
        pool=pools,
        limit_s=st.sampled_from([0, 0, 1, 100, 1000]),
    )
    def offer(self, gpus: int, nodes: int, cpu: int, pool: str, limit_s: int = 0) -> None:
        self.absorb(self.world.offer(request(gpus, nodes=nodes, cpu=cpu, pool=pool), limit_s=limit_s))

    @rule(pool=st.sampled_from(["default", "big"]), packing=st.sampled_from(PACKINGS), removed=st.booleans())
    def queue_sets_a_pool(self, pool: str, packing: Packing, removed: bool) -> None:
        """By which policy its nodes are chosen, whether it has any or not; the invariants know that it goes by that."""
        asked: ev.Event = ev.PoolConfigured(cause="cmd:q", pool=pool, settings=PoolSettings(packing=packing))
        self.absorb(self.world.queue(ev.PoolRemoved(cause="cmd:q", pool=pool) if removed else asked))

    @rule(data=st.data())
    def queue_asks(self, data: st.DataObject) -> None:
        """Another rank, nodes to be kept, runs that may yield; for a job of any state, as a late word may be."""
        self.absorb(self.world.queue(*self._asked(data)))

    @rule(data=st.data(), loose=st.booleans())
    def queue_asks_meanwhile(self, data: st.DataObject, loose: bool) -> None:
        """The queue's words come between a decision of the placer and its commit."""
        self.world.fold("queue", [*self._asked(data), *self.world.submitted(request(1, cpu=1))])
        decision = self.world.decide()
        self.world.fold("queue", self._asked(data) + self._taken_back(data, loose))
        if decision.events:
            self.world.fold("placer", decision.events, decision.cursors)
        self.absorb(decision.events + self.world.step())

    def _asked(self, data: st.DataObject) -> list[ev.Event]:
        state = self.world.core.state
        job = str(data.draw(st.integers(1, max(1, self.world.jobs))))
        if state.offers and data.draw(st.booleans()):
            job = data.draw(st.sampled_from(sorted(state.offers)))
        kind = data.draw(st.sampled_from(["rank", "claim", "plea", "amounts"]))
        if kind == "rank":
            known = job not in self.settled and job not in state.withdrawals
            offered = ev.JobOffered(cause="clock", job=job, attempt=1, rank=data.draw(st.integers(1, 99)))
            return [offered] if known else []
        if kind == "claim":
            return [ev.ReservationRequested(cause="clock", job=job, attempt=1, waited_ns=1)]
        runs = [state.runs[key] for key in data.draw(st.permutations(sorted(state.runs)))]
        victims = tuple(
            ev.Victim(job=run.job, attempt=run.attempt, rule="lower_priority", gpu_s=int(run.job) % 3) for run in runs
        )
        amounts = {"gpu": 2000, "cpu": 1000} if kind == "amounts" else {}
        return [ev.PreemptionRequested(cause="clock", job=job, attempt=1, victims=victims, amounts=amounts)]

    def _taken_back(self, data: st.DataObject, loose: bool) -> list[ev.Event]:
        offers = sorted(self.world.core.state.offers)
        if not loose or not offers:
            return []
        job = data.draw(st.sampled_from(offers))
        return [ev.OfferWithdrawn(cause="cmd:r", job=job, attempt=1, reason="hold")]

    @precondition(lambda self: self.world.core.state.unanswered)
    @rule()
    def queue_answers(self) -> None:
        """The ends that the queue has seen."""
        jobs = sorted(self.world.core.state.unanswered)
        self.settled.update(jobs)
        self.absorb(self.world.queue(*(ev.JobSucceeded(cause="clock", job=job) for job in jobs)))
        assert self.world.core.state.unanswered == {}

    @precondition(lambda self: self.world.core.state.offers)
    @rule(data=st.data(), withdrawal=st.booleans())
    def take_back(self, data: st.DataObject, withdrawal: bool) -> None:
        job = data.draw(st.sampled_from(sorted(self.world.core.state.offers)))
        asked: ev.Event = ev.JobStopRequested(cause="cmd:s", job=job, attempt=1, reason="cancelled")
        if withdrawal:
            asked = ev.OfferWithdrawn(cause="cmd:r", job=job, attempt=1, reason="hold")
        events = self.world.queue(asked)
        assert [e.job for e in events if isinstance(e, ev.OfferReturned)] == [job]
        self.absorb(events)

    @precondition(lambda self: self.world.core.state.runs)
    @rule(data=st.data())
    def stop_run(self, data: st.DataObject) -> None:
        run = self.world.core.state.runs[data.draw(st.sampled_from(sorted(self.world.core.state.runs)))]
        asked = ev.JobStopRequested(cause="cmd:s", job=run.job, attempt=run.attempt, reason="cancelled")
        self.absorb(self.world.queue(asked))

    @precondition(lambda self: any(agent.running for agent in self.agents.values()))
    @rule(data=st.data(), code=st.sampled_from([0, 0, 1]), clean=st.booleans(), send=st.booleans())
    def rank_ends(self, data: st.DataObject, code: int, clean: bool, send: bool) -> None:
        node = data.draw(st.sampled_from(sorted(n for n, agent in self.agents.items() if agent.running)))
        agent = self.agents[node]
        job, attempt, rank = data.draw(st.sampled_from(sorted(agent.running)))
        agent.running.discard((job, attempt, rank))
        agent.add(StartSeen(n=0, job=job, attempt=attempt, rank=rank))
        agent.add(ExitSeen(n=0, job=job, attempt=attempt, rank=rank, outcome="exited", exit_code=code, clean=clean))
        if not clean:
            agent.dirty.add((job, attempt, rank))
        if send:
            self.send(node)

    @precondition(lambda self: any(agent.dirty for agent in self.agents.values()))
    @rule(data=st.data())
    def rank_is_clean(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(n for n, agent in self.agents.items() if agent.dirty)))
        agent = self.agents[node]
        job, attempt, rank = agent.dirty.pop()
        agent.add(CleanSeen(n=0, job=job, attempt=attempt, rank=rank))
        self.send(node)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), first=st.integers(0, 12), count=st.integers(1, 6))
    def any_message_again(self, data: st.DataObject, first: int, count: int) -> None:
        """Repetitions, gaps and old journals' messages."""
        node = data.draw(st.sampled_from(sorted(self.agents)))
        self.absorb(self.world.step(self.agents[node].message(node, first, count)))

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), rank=st.integers(0, 3))
    def false_report(self, data: st.DataObject, rank: int) -> None:
        """A node speaks of a job that may not be its own."""
        node = data.draw(st.sampled_from(sorted(self.agents)))
        job = str(data.draw(st.integers(1, max(1, self.world.jobs))))
        if (job, 1, rank) in self.agents[node].running:
            return
        self.agents[node].add(CleanSeen(n=0, job=job, attempt=1, rank=rank))
        self.send(node)

    @rule(node=node_names)
    def lose(self, node: str) -> None:
        self.absorb(self.world.silent(node))

    @rule(node=node_names)
    def hear(self, node: str) -> None:
        self.absorb(self.world.heard(node))

    @rule(node=node_names, kind=st.sampled_from(["cordon", "uncordon", "drain", "drain now"]))
    def order(self, node: str, kind: str) -> None:
        command = {
            "cordon": CordonNode(id="1", node=node),
            "uncordon": UncordonNode(id="2", node=node),
            "drain": DrainNode(id="3", node=node),
            "drain now": DrainNode(id="4", node=node, deadline_ns=SECOND),
        }[kind]
        events = self.world.command(command)
        assert any(event.cause == f"cmd:{command.id}" for event in events)
        self.absorb(events)

    @rule(node=node_names, data=st.data())
    def operate(self, node: str, data: st.DataObject) -> None:
        """Taints, quarantine, windows and rollouts, each answered."""
        starts_ns = self.world.now + data.draw(st.integers(-5, 20)) * SECOND
        command = data.draw(st.sampled_from([
            TaintNode(id="5", node=node, taint="a=b:NoSchedule"), TaintNode(id="6", node=node, taint="a=b:NoExecute"),
            TaintNode(id="7", node=node, taint="c:PreferNoSchedule"), UntaintNode(id="8", node=node, taint="a"),
            QuarantineNode(id="9", node=node), UnquarantineNode(id="10", node=node), ResetBreaker(id="11"),
            StartRollout(id="12", name="r", every=True, budget_gpus=8, deadline_ns=5 * SECOND, stop_long=True),
            FinishRolloutNode(id="13", name="r", node=node), CancelRollout(id="14", name="r"),
            PauseRollout(id="15", name="r"), ResumeRollout(id="16", name="r"),
            ScheduleMaintenance(
                id="17", name="w", nodes=(node,), starts_ns=starts_ns, ends_ns=starts_ns + 9 * SECOND, notice_ns=SECOND
            ),
            CancelMaintenance(id="18", name="w"), RestoreGpu(id="19", node=node, gpu=f"{node}-g0"),
        ]))  # fmt: skip
        events = self.world.command(command)
        assert any(event.cause == f"cmd:{command.id}" for event in events)
        self.absorb(events)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), gpu=st.integers(0, 2), code=st.sampled_from(["", "thermal", "xid79", "xid13"]))
    def health(self, data: st.DataObject, gpu: int, code: str) -> None:
        node = data.draw(st.sampled_from(sorted(self.agents)))
        self.agents[node].add(HealthSeen(n=0, gpu=f"{node}-g{gpu}", code=code))
        self.send(node)

    @rule(seconds=st.integers(1, 30))
    def pass_time(self, seconds: int) -> None:
        self.world.now += seconds * SECOND
        self.absorb(self.world.step())

    @rule()
    def restart_the_placer(self) -> None:
        """Restart from a snapshot, which keeps its state: it places nothing new, but may report causes again."""
        self.world.core = PlacerCore.restore(self.world.core.snapshot())
        assert all(isinstance(event, ev.JobUnplaceable) for event in self.world.step())

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "world"):
            return
        shot = self.world.core.snapshot()
        restored = PlacerCore.restore(shot)
        assert restored.snapshot() == shot
        check(restored.state)

    def teardown(self) -> None:
        """Once faults stop, everything that was placed ends and is given back (I10)."""
        if not hasattr(self, "world"):
            return
        self.absorb(
            self.world.command(
                CancelRollout(id="r", name="r"), CancelMaintenance(id="w", name="w"), ResetBreaker(id="b")
            )
        )
        for node in sorted(self.agents):
            self.absorb(self.world.heard(node))
            self.absorb(
                self.world.command(
                    UncordonNode(id="u", node=node),
                    UnquarantineNode(id="q", node=node),
                    UntaintNode(id="a", node=node, taint="a"),
                )
            )
        for _ in range(200):
            held = [node for node in sorted(self.agents) if self.world.core.state.nodes[node].held]
            if not held:
                break
            for node in held:
                self.agents[node].running.clear()
                for key, rank in sorted(self.world.core.state.nodes[node].held.items()):
                    run = self.world.core.state.runs[key]
                    end = ExitSeen(n=0, job=run.job, attempt=run.attempt, rank=rank, outcome="stopped", clean=True)
                    self.agents[node].add(end)
                self.send(node)
        assert self.world.core.state.runs == {}
        assert self.starts == self.ended
        state = self.world.core.state
        assert (state.reservations, state.claims, state.preemption_requests) == ({}, {}, {}), (
            "what is kept is given at last"
        )
        for group in self.world.core.state.classes.values():
            assert group.outcome is not None, "an offer waits, and nothing was said about it"
        fresh = PlacerCore()
        for sequence, commit in enumerate(self.world.log, 1):
            fresh.evolve(sequence, commit)
        assert fresh.snapshot() == self.world.core.snapshot()


PlacerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPlacerMachine = pytest.mark.slow(PlacerMachine.TestCase)
