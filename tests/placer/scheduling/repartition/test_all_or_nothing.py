"""Jobs of several units for which GPUs are cut: on small worlds, that start exactly when some legal layouts would let them.

What is possible is worked out the slow way, from the published tables (tests/placer/mig/exhaustive.py): each GPU by itself, what is in
use and idle instances of the profile left where they are.
"""

import random
from itertools import combinations
from typing import Any

import msgspec
import pytest

from fairlead_schemas.units.hardware import domain_of
from fairlead_schemas.wire.resources import Gpu, Request
from tests.kit.placer_world import placed, request
from tests.placer.mig.exhaustive import is_legal, profiles
from tests.placer.scheduling.repartition.migworld import MigWorld, mig, planned

MODEL = "A100-40GB"
LAYOUTS = (
    "",
    "3g.20gb@4",
    "1g.5gb@0",
    "1g.5gb@2 2g.10gb@4",
    "3g.20gb@0 1g.5gb@4",
    "2g.10gb@0 2g.10gb@2",
    "7g.40gb@0",
    None,
)


def most(gpu: Gpu, profile: str, busy: set[str]) -> int:
    """Return the number of instances of the profile that a GPU has idle or could get."""
    solid = [(one.profile, one.start) for one in gpu.instances if one.uuid in busy or one.profile == profile]
    starts = [place["start"] for place in profiles(MODEL)[profile]["placements"]]
    added = next(
        count
        for count in range(len(starts), -1, -1)
        for some in combinations(starts, count)
        if is_legal(MODEL, (*solid, *((profile, start) for start in some)))
    )
    return added + sum(one.profile == profile and one.uuid not in busy for one in gpu.instances)


def units(world: MigWorld, node: str, wanted: Request) -> int:
    """Units of the job that the node could give."""
    inventory, held = world.inventories[node], world.core.state.nodes[node].held
    parts = [world.core.state.runs[key].parts[rank] for key, rank in held.items()]
    busy, used = {each for part in parts for each in part.instances}, {each for part in parts for each in part.gpus}
    word = inventory.labels["fairlead/mig"]
    pieces = 0
    for gpu in inventory.gpus:
        if wanted.profile and (gpu.mig or (word == "auto" and gpu.uuid not in used)):
            idle = sum(one.profile == wanted.profile and one.uuid not in busy for one in gpu.instances)
            pieces += idle if word == "fixed" else most(gpu, wanted.profile, busy)
        elif not wanted.profile:
            pieces += gpu.uuid not in used and (not gpu.mig or word == "auto")
    each = wanted.gpu_parts if wanted.profile else wanted.gpu_milli // 1000
    cpu_milli = inventory.cpu_milli - sum(part.cpu_milli for part in parts)
    found = min(pieces // each, cpu_milli // wanted.cpu_milli)
    return found if wanted.tasks else min(1, found)


def is_possible(world: MigWorld, wanted: Request) -> bool:
    """In some domain."""
    level = (wanted.require or ("",))[0]
    rooms: dict[str, int] = {}
    for node, inventory in world.inventories.items():
        domain = node if level == "node" else domain_of(inventory.labels, level) if level else "all"
        rooms[domain] = rooms.get(domain, 0) + units(world, node, wanted)
    return max(rooms.values()) >= wanted.nodes


def drawn(chance: random.Random) -> MigWorld:
    """Two or three nodes of a GPU or two, cut somehow; some instances are in use."""
    world = MigWorld()
    for at in range(chance.choice((2, 3))):
        labels = {
            "fairlead/mig": chance.choice(("auto", "auto", "recut", "fixed")),
            "fairlead/rack": chance.choice(("r1", "r2")),
        }
        layouts = [chance.choice(LAYOUTS) for _ in range(chance.choice((1, 2)))]
        world.join_cut(f"n{at}", *layouts, cpu=chance.choice((3, 64)), labels=labels)
    there = [one.profile for each in world.inventories.values() for gpu in each.gpus for one in gpu.instances]
    for profile in chance.sample(there, min(len(there), chance.choice((0, 1, 3)))):
        assert placed(world.offer(mig(profile)))
    return world


def wish(chance: random.Random) -> Request:
    """Tasks or a gang, of instances or of whole GPUs, anywhere or in one domain."""
    parts, more = chance.choice((1, 1, 2)), dict[str, Any]()
    more["tasks"] = chance.random() < 0.7
    more["nodes"] = chance.choice((2, 3, 5) if more["tasks"] else (2, 2, 3))
    more["require"] = chance.choice(((), (), ("rack",), ("node",) if more["tasks"] else ("rack",)))
    if chance.random() < 0.25:
        return msgspec.structs.replace(request(1), **more)
    return mig(chance.choice(("1g.5gb", "2g.10gb", "3g.20gb")), parts, **more)


@pytest.mark.parametrize("seed", range(60))
def test_a_job_starts_exactly_where_it_could(seed: int) -> None:
    """Cut after cut; nothing is cut where that would not do."""
    chance = random.Random(seed)
    world, wanted = drawn(chance), wish(chance)
    possible = is_possible(world, wanted)
    events = world.offer(wanted)
    job = str(world.jobs)
    assert possible or not planned(events)
    for _ in range(12):
        nodes = [node for node in world.inventories if world.layout_orders(node)]
        if not nodes:
            break
        for node in nodes:
            world.carry_out(node)
    assert (job not in world.core.state.offers) == possible, f"{wanted} of {world.inventories}"


def test_the_generated_worlds_have_jobs_that_start_and_jobs_that_wait() -> None:
    """Some jobs start only after a repartition of their GPUs."""
    found = {"cut": 0, "as it was": 0, "never": 0}
    for seed in range(60):
        chance = random.Random(seed)
        world, wanted = drawn(chance), wish(chance)
        possible = is_possible(world, wanted)
        found["never" if not possible else "cut" if planned(world.offer(wanted)) else "as it was"] += 1
    assert min(found.values()) >= 5, found
