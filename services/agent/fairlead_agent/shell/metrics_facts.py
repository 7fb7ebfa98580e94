"""Collection of the agent's facts when its metrics are requested. No device is queried: the page shows the newest look."""

import time
from collections import Counter
from typing import TYPE_CHECKING

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.node.metrics.exposition import NodeFacts, Owner
from fairlead_agent.node.metrics.families import exposition

if TYPE_CHECKING:  # the agent serves what is collected here
    from fairlead_agent.agent import Agent


def page(agent: "Agent") -> bytes:
    """The node's exposition now."""
    return exposition(look(agent))


def look(agent: "Agent") -> NodeFacts:
    """Return all metric facts of this node."""
    devices, measuring, tending, ledger = agent.devices, agent.measuring, agent.tending, agent.ledger
    taken = measuring.taken_s
    return NodeFacts(
        node=agent.settings.node, devices=devices.name, simulated=devices.simulated,
        driver_version=devices.labels().get("nvidia.com/cuda.driver-version.full", ""), gpus=devices.gpus(),
        samples=measuring.newest, age_s=None if taken is None else time.monotonic() - taken,
        health={each.uuid: each for each in tending.gpus}, xids=tending.xids, holders=_holders(agent),
        uses=measuring.uses(), resources=measuring.resources, owners=_owners(agent), runs=Counter(run.phase for run in ledger.runs.values()),
        unconfirmed=ledger.reported - agent.outbox.confirmed, gate_closed=tending.gate.closed,
        disk_full=agent.journal.reserve.short, batches=measuring.batches,
    )  # fmt: skip


def _holders(agent: "Agent") -> dict[str, list[Owner]]:
    """{UUID: runs that have it, the first first}. What an ended run may still occupy is its own until it is clean."""
    found: dict[str, list[Owner]] = {}
    for run in agent.ledger.runs.values():
        if run.phase != "clean":
            for uuid in run.devices:
                found.setdefault(uuid, []).append(_owner(agent, run))
    return found


def _owners(agent: "Agent") -> dict[str, Owner]:
    return {f"{run.key.job}.{run.key.attempt}": _owner(agent, run) for run in agent.ledger.runs.values()}


def _owner(agent: "Agent", run: RunEntry) -> Owner:
    order = (agent.core.wanted or {}).get(run.key)
    key = run.key
    return Owner(key.job, key.attempt, key.rank, *((order.user, order.queue) if order is not None else ()))
