"""Repartition of GPUs for waiting jobs: planned, ordered, reported, and only then allocated."""

from typing import Any

import pytest

from fairlead_placer.cluster.plans import BACKOFF_NS, LATE_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode
from fairlead_schemas.wire.reports import HealthSeen, InventorySeen
from fairlead_schemas.wire.resources import Request
from tests.kit.placer_world import SECOND, names, placed, request
from tests.placer.scheduling.repartition.migworld import MigWorld, cut_inventory, given, mig, planned

AUTO = {"fairlead/mig": "auto"}


def world(*layouts: str | None, labels: dict[str, str] | None = None) -> MigWorld:
    """One node n1."""
    made = MigWorld()
    made.join_cut("n1", *layouts, labels=labels)
    return made


def reasons(events: list[ev.Event]) -> dict[str, int]:
    """Of the last refusal."""
    return [event for event in events if isinstance(event, ev.JobUnplaceable)][-1].reasons


# ------------------------------------------------------------------ what is there


def test_an_idle_instance_is_allocated_and_returned() -> None:
    """No other job gets it meanwhile, and no repartition is planned for a job that finds one."""
    made = world("3g.20gb@0 3g.20gb@4", labels={"fairlead/mig": "fixed"})
    first = made.offer(mig("3g.20gb"))
    assert names(first) == ["JobPlaced"]
    (part,) = next(event.parts for event in first if isinstance(event, ev.JobPlaced))
    assert (part.gpus, part.gpu_milli, part.gpu_memory_mib) == (("n1-g0",), 429, 0)
    second = made.offer(mig("3g.20gb"))
    assert {*given(first).values(), *given(second).values()} == {("n1-g0/3g.20gb@0",), ("n1-g0/3g.20gb@4",)}
    assert reasons(made.offer(mig("3g.20gb"))) == {"free_mig": 1}
    assert made.orders("n1")["1.1"].instances == given(first)["1"]
    made.start("n1", "1")
    assert given(made.exit("n1", "1")) == {"3": given(first)["1"]}


def test_a_gpu_in_mig_mode_is_allocated_neither_whole_nor_in_shares() -> None:
    """Even if it is idle; the cause names MIG mode, and that waiting does not help."""
    made = world("", "")
    assert reasons(made.offer(request(1))) == {"mig_mode": 1}
    assert reasons(made.offer(request(1, gpu_parts=1))) == {"mig_mode": 1}
    assert placed(made.offer(request(0))) == {"3": ["n1"]}


def test_a_profile_that_no_gpu_supports_is_refused_permanently() -> None:
    """Also with MIG mode off and not allowed."""
    assert reasons(world("").offer(mig("1g.10gb+me"))) == {"mig_profile": 1}
    assert reasons(world(None).offer(mig("1g.5gb"))) == {"mig_profile": 1}


def test_several_instances_of_one_job_may_be_on_one_gpu() -> None:
    """Each is named with its GPU."""
    made = world("3g.20gb@0 3g.20gb@4")
    (event,) = made.offer(mig("3g.20gb", 2))
    assert isinstance(event, ev.JobPlaced)
    assert event.parts[0].gpus == ("n1-g0", "n1-g0")
    assert event.parts[0].instances == ("n1-g0/3g.20gb@0", "n1-g0/3g.20gb@4")


def test_gpus_in_use_are_filled_first() -> None:
    """Idle GPUs stay available for a repartition or for whole-GPU jobs."""
    made = world("3g.20gb@0", "3g.20gb@0 3g.20gb@4")
    assert given(made.offer(mig("3g.20gb"))) == {"1": ("n1-g0/3g.20gb@0",)}
    assert given(made.offer(mig("3g.20gb"))) == {"2": ("n1-g1/3g.20gb@4",)}
    assert given(made.offer(mig("3g.20gb"))) == {"3": ("n1-g1/3g.20gb@0",)}


def test_a_gang_gets_instances_on_every_node() -> None:
    """All or nothing."""
    made = MigWorld()
    for node in ("n1", "n2"):
        made.join_cut(node, "3g.20gb@0", labels={"fairlead/mig": "fixed"})
    assert placed(made.offer(mig("3g.20gb", nodes=2))) == {"1": ["n1", "n2"]}
    assert names(made.offer(mig("3g.20gb", nodes=2))) == ["JobUnplaceable"]


def test_tasks_share_nodes_by_their_instances() -> None:
    """As many as each node has idle; others are made where more are wanted."""
    made = MigWorld()
    made.join_cut("n1", "1g.5gb@0 1g.5gb@1 1g.5gb@2", labels={"fairlead/mig": "fixed"})
    made.join_cut("n2", "1g.5gb@0 1g.5gb@1", labels={"fairlead/mig": "fixed"})
    assert names(made.offer(mig("1g.5gb", nodes=6, tasks=True))) == ["JobUnplaceable"]
    event = made.offer(mig("1g.5gb", nodes=5, tasks=True))[0]
    assert isinstance(event, ev.JobPlaced)
    assert sorted((part.node, part.tasks, len(part.instances)) for part in event.parts) == [("n1", 3, 3), ("n2", 2, 2)]


def test_nodes_with_the_fewest_missing_instances_are_repartitioned_for_tasks() -> None:
    """On as few nodes as needed; in one rack if required."""
    made = MigWorld()
    made.join_cut("n1", "3g.20gb@4", labels={"fairlead/rack": "r1"})
    made.join_cut("n2", "", labels={"fairlead/rack": "r2"})
    made.join_cut("n3", "", labels={"fairlead/rack": "r2"})
    assert [gpu for gpu, *_ in planned(made.offer(mig("3g.20gb", nodes=3, tasks=True)))] == ["n2-g0"]
    assert placed(made.carry_out("n2")) == {"1": ["n1", "n2"]}
    assert [gpu for gpu, *_ in planned(made.offer(mig("3g.20gb", nodes=2, tasks=True, require=("rack",))))] == ["n3-g0"]
    assert placed(made.carry_out("n3")) == {"2": ["n3"]}


def test_under_the_single_strategy_a_gpu_is_an_instance() -> None:
    """As in Kubernetes; with the memory that is asked for, and never by its profile."""
    made = world("2g.10gb@0 2g.10gb@2 2g.10gb@4", labels={"nvidia.com/mig.strategy": "single"})
    first = made.offer(request(2))
    assert len(given(first)["1"]) == 2
    assert next(event.parts[0].gpu_milli for event in first if isinstance(event, ev.JobPlaced)) == 286
    assert reasons(made.offer(mig("2g.10gb"))) == {"mig_profile": 1}
    assert reasons(made.offer(request(1, gpu_memory_mib=20480))) == {"free_mig": 1}
    assert reasons(made.offer(request(1, gpu_parts=1))) == {"mig_mode": 1}
    assert names(made.offer(request(1))) == ["JobPlaced"]
    assert reasons(made.offer(request(1))) == {"free_mig": 1}


# ------------------------------------------------------------------ cutting anew


def test_free_slices_are_repartitioned_for_waiting_jobs_and_allocated_after_the_report() -> None:
    """The plan comes with the refusal; the placement with the agent's report, not before."""
    made = world("")
    events = made.offer(mig("3g.20gb"))
    assert names(events) == ["JobUnplaceable", "MigLayoutPlanned"]
    assert planned(events) == [("n1-g0", "", (), ("3g.20gb@4",))]
    (order,) = made.layout_orders("n1")
    assert order.plan == len(made.log)
    events = made.carry_out("n1")
    assert names(events) == ["NodeChanged", "MigLayoutChanged", "JobPlaced"]
    assert given(events) == {"1": ("n1-g0/new1",)}
    assert made.layout_orders("n1") == []


def test_one_plan_serves_all_jobs_that_fit() -> None:
    """Jobs are served in order; a job that does not fit with the earlier ones keeps waiting."""
    made = world("")
    made.fold(
        "queue", [event for profile in ("3g.20gb", "4g.20gb", "1g.5gb") for event in made.submitted(mig(profile))]
    )
    (plan,) = [event for event in made.step() if isinstance(event, ev.MigLayoutPlanned)]
    assert plan.jobs == ("1", "2")
    assert planned([plan]) == [("n1-g0", "", (), ("4g.20gb@0", "3g.20gb@4"))]
    events = made.carry_out("n1")
    assert sorted(given(events)) == ["1", "2"]
    assert planned(events) == []


def test_idle_instances_make_room_and_those_in_use_stay() -> None:
    """Only what must go is destroyed."""
    made = world("1g.5gb@0 1g.5gb@1 2g.10gb@4")
    held = given(made.offer(mig("1g.5gb")))["1"]
    events = made.offer(mig("4g.20gb"))
    assert planned(events) == [], "an instance in use lies there"
    events = made.offer(mig("3g.20gb"))
    assert planned(events) == [("n1-g0", "", ("2g.10gb@4",), ("3g.20gb@4",))]
    assert given(made.carry_out("n1")) == {"3": ("n1-g0/new1",)}
    assert made.core.state.nodes["n1"].left.cuts is not None
    assert held[0] in made.core.state.nodes["n1"].left.cuts.held


def test_instances_that_a_plan_destroys_are_not_allocated_and_the_others_are() -> None:
    """From the plan on, until the report."""
    made = world("1g.5gb@6 2g.10gb@0")
    assert planned(made.offer(mig("4g.20gb"))) == [("n1-g0", "", ("2g.10gb@0",), ("4g.20gb@0",))]
    assert names(made.offer(mig("2g.10gb"))) == ["JobUnplaceable"]
    assert given(made.offer(mig("1g.5gb"))) == {"3": ("n1-g0/1g.5gb@6",)}
    assert given(made.carry_out("n1")) == {"1": ("n1-g0/new1",)}


def test_mig_mode_is_enabled_where_allowed_and_disabled_again() -> None:
    """A whole GPU is not allocated during its repartition; an unused one is made whole for a job that needs that."""
    made = world(None, labels=AUTO)
    assert planned(made.offer(mig("3g.20gb"))) == [("n1-g0", "on", (), ("3g.20gb@4",))]
    assert reasons(made.offer(request(1))) == {"free_gpus": 1}
    made.carry_out("n1")
    made.start("n1", "1")
    assert planned(made.exit("n1", "1")) == [("n1-g0", "off", ("3g.20gb@4",), ())]
    events = made.carry_out("n1")
    assert names(events) == ["NodeChanged", "MigLayoutChanged", "JobPlaced"]
    assert placed(events) == {"2": ["n1"]}


def test_gpus_are_made_whole_for_gangs_and_shares() -> None:
    """One on each node that lacks it, if the gang can have all of them, together with nodes that are ready."""
    made = MigWorld()
    made.join_cut("n1", "3g.20gb@0", labels=AUTO)
    made.join_cut("n2", None, labels=AUTO)
    assert planned(made.offer(request(1, nodes=3))) == []
    assert [each[:2] for each in planned(made.join_cut("n3", "", labels=AUTO))] == [("n1-g0", "off"), ("n3-g0", "off")]
    made.carry_out("n1")
    assert placed(made.carry_out("n3")) == {"1": ["n1", "n2", "n3"]}
    made = world("", labels=AUTO)
    assert [each[:2] for each in planned(made.offer(Request(gpu_milli=500, gpu_parts=1)))] == [("n1-g0", "off")]
    assert placed(made.carry_out("n1")) == {"1": ["n1"]}


@pytest.mark.parametrize(
    "more", [{"require": ("rack",), "nodes": 2}, {"require": ("numa",)}, {"also": (mig("3g.20gb"),)}]
)
def test_a_job_without_a_plan_takes_available_instances(more: dict[str, Any]) -> None:
    """Plans do not model links or several task groups, and one node is not a rack of two."""
    made = world("", "", labels=AUTO | {"fairlead/rack": "r"})
    assert planned(made.offer(mig("3g.20gb", **more))) == []


def test_an_exclusive_job_gets_its_instance_on_an_empty_node() -> None:
    """And nowhere else."""
    made = world("", "")
    made.offer(mig("1g.5gb"))
    made.carry_out("n1")
    assert planned(made.offer(mig("3g.20gb", exclusive=True))) == []
    made.join_cut("n2", "")
    assert placed(made.carry_out("n2")) == {"2": ["n2"]}


def test_a_gpu_in_use_is_not_opened_where_one_in_mig_mode_will_do() -> None:
    """And a whole one only where all else is full."""
    made = world(None, "7g.40gb@0", "", labels=AUTO)
    assert planned(made.offer(mig("7g.40gb"))) == []
    assert [gpu for gpu, *_ in planned(made.offer(mig("7g.40gb")))] == ["n1-g2"]


def test_fixed_nodes_and_full_gpus_are_not_repartitioned() -> None:
    """The job waits, and the reason is that no instance is free."""
    assert planned(world("", labels={"fairlead/mig": "fixed"}).offer(mig("3g.20gb"))) == []
    made = world("7g.40gb@0")
    made.offer(mig("7g.40gb"))
    assert names(made.offer(mig("1g.5gb"))) == ["JobUnplaceable"]
    made.start("n1", "1")
    assert planned(made.exit("n1", "1")) == [("n1-g0", "", ("7g.40gb@0",), ("1g.5gb@6",))]


def test_several_instances_of_one_node_come_one_gpu_after_the_other() -> None:
    """Nothing is planned where not all could be had."""
    made = world("", "")
    assert planned(made.offer(mig("3g.20gb", 5))) == []
    made = world("", "")
    assert len(planned(made.offer(mig("3g.20gb", 3)))[0][3]) == 2
    assert [len(create) for *_, create in planned(made.carry_out("n1"))] == [1]
    assert len(given(made.carry_out("n1"))["1"]) == 3


def test_idle_instances_on_the_gpu_count_and_stay() -> None:
    """A second instance is created next to the first; also for a gang that already has its unit on another node."""
    made = world("3g.20gb@4")
    assert planned(made.offer(mig("3g.20gb", 2))) == [("n1-g0", "", (), ("3g.20gb@0",))]
    assert given(made.carry_out("n1")) == {"1": ("n1-g0/new1", "n1-g0/3g.20gb@4")}
    made = world("3g.20gb@0 3g.20gb@4")
    made.join_cut("n2", "3g.20gb@4 1g.5gb@0")
    assert planned(made.offer(mig("3g.20gb", 2, nodes=2))) == [("n2-g0", "", ("1g.5gb@0",), ("3g.20gb@0",))]
    assert placed(made.carry_out("n2")) == {"1": ["n1", "n2"]}


def test_all_nodes_of_a_gang_of_instances_are_repartitioned() -> None:
    """At once; and none if too few nodes could serve it."""
    made = MigWorld()
    made.join_cut("n1", "")
    assert planned(made.offer(mig("3g.20gb", nodes=2))) == []
    assert [gpu for gpu, *_ in planned(made.join_cut("n2", ""))] == ["n1-g0", "n2-g0"]
    made.carry_out("n1")
    assert placed(made.carry_out("n2")) == {"1": ["n1", "n2"]}


# ------------------------------------------------------------------ what goes wrong


def test_a_failed_repartition_pauses_the_gpu() -> None:
    """The pause grows with each failure, up to a bound."""
    made = world("")
    made.offer(mig("3g.20gb"))
    events = made.carry_out("n1", failure="Insufficient Permissions")
    assert names(events) == ["MigLayoutFailed"]
    assert made.step() == []
    for wait_ns in (BACKOFF_NS, 2 * BACKOFF_NS):
        assert made.core.wake_at() == made.now + wait_ns
        made.now += wait_ns
        assert names(made.step()) == ["MigLayoutPlanned"]
        assert names(made.carry_out("n1", failure="again")) == ["MigLayoutFailed"]
    assert given(made.join_cut("n2", "3g.20gb@0")) == {"1": ("n2-g0/3g.20gb@0",)}


def test_a_failed_plan_is_made_elsewhere_at_once() -> None:
    """Another GPU has not failed."""
    made = world("", "")
    assert [gpu for gpu, *_ in planned(made.offer(mig("3g.20gb")))] == ["n1-g0"]
    assert [gpu for gpu, *_ in planned(made.carry_out("n1", failure="no"))] == ["n1-g1"]


def test_an_inventory_that_differs_from_the_plan_is_a_failure() -> None:
    """The reported inventory counts, whatever the agent's message."""
    made = world("")
    made.offer(mig("3g.20gb"))
    (order,) = made.layout_orders("n1")
    inventory = cut_inventory("n1", "1g.5gb@0")
    events = made.report("n1", InventorySeen(n=0, boot_id="boot-1", inventory=inventory, plan=order.plan))
    assert names(events) == ["NodeChanged", "MigLayoutFailed"]
    assert [event.reason for event in events if isinstance(event, ev.MigLayoutFailed)] == ["there is no 3g.20gb at 4"]


def test_an_agent_that_never_answers_is_given_up() -> None:
    """Its late report is then an inventory like any other."""
    made = world("")
    made.offer(mig("3g.20gb"))
    (order,) = made.layout_orders("n1")
    assert made.core.wake_at() == made.now + LATE_NS
    made.now += LATE_NS
    events = made.step()
    assert [event.reason for event in events if isinstance(event, ev.MigLayoutDropped)] == ["late"]
    assert made.layout_orders("n1") == []
    inventory = made.cut("n1", order)
    events = made.report("n1", InventorySeen(n=0, boot_id="boot-1", inventory=inventory, plan=order.plan))
    assert names(events) == ["NodeChanged", "JobPlaced"]


@pytest.mark.parametrize("how", ["lost", "cordoned", "faulted", "anew", "rebooted"])
def test_a_plan_ends_with_its_node_or_gpu(how: str) -> None:
    """And the job may be served elsewhere at once."""
    made = world("")
    made.offer(mig("3g.20gb"))
    if how == "lost":
        events = made.silent("n1")
    elif how == "cordoned":
        events = made.command(CordonNode(id="c1", user="ann", node="n1", reason="x"))
    elif how == "faulted":
        events = made.report("n1", HealthSeen(n=0, gpu="n1-g0", code="xid79"))
    elif how == "anew":
        events = made.join_cut("n1", "")
    else:
        events = made.report("n1", InventorySeen(n=0, boot_id="boot-2", inventory=made.inventories["n1"]))
    assert "MigLayoutDropped" in names(events)
    again = how in ("anew", "rebooted")
    assert len(planned(events)) == again
    if not again:
        assert planned(made.join_cut("n2", "")) == [("n2-g0", "", (), ("3g.20gb@4",))]


def test_an_instance_that_left_under_its_run_frees_nothing() -> None:
    """Before the run has ended, its GPU is not whole and not repartitioned."""
    made = world("3g.20gb@0", labels=AUTO)
    made.offer(mig("3g.20gb"))
    made.report("n1", InventorySeen(n=0, boot_id="boot-1", inventory=cut_inventory("n1", None, labels=AUTO)))
    assert reasons(made.offer(request(1))) == {"free_gpus": 1}
    assert planned(made.offer(mig("1g.5gb"))) == []
    made.start("n1", "1")
    assert placed(made.exit("n1", "1")) == {"2": ["n1"]}


def test_a_cancelled_jobs_plan_is_carried_out_for_others() -> None:
    """The order may be under way; what it makes goes to who is next."""
    made = world("")
    made.offer(mig("3g.20gb"))
    made.queue(ev.JobStopRequested(cause="cmd:x", job="1", attempt=1, reason="cancelled"))
    made.offer(mig("3g.20gb"))
    assert given(made.carry_out("n1")) == {"2": ("n1-g0/new1",)}


def test_plans_and_failures_survive_a_restart() -> None:
    """The snapshot has them (World checks that deciding leaves no trace)."""
    from fairlead_placer.core import PlacerCore

    made = world("", "")
    made.offer(mig("3g.20gb"))
    made.carry_out("n1", failure="no")
    restored = PlacerCore.restore(made.core.snapshot())
    assert restored.snapshot() == made.core.snapshot()
    assert restored.state.layouts == made.core.state.layouts != {}
    assert restored.state.spoilt == made.core.state.spoilt != {}
    made.now += SECOND
    assert restored.decide((), made.now) == made.core.decide((), made.now)
