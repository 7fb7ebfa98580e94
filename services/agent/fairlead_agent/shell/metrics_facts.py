"""Facts for the agent's metrics page, collected when a scraper requests it. No device is queried: the newest sample is shown."""

import time
from collections import Counter
from typing import NamedTuple

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.outbox import Outbox
from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.devices.port import Devices
from fairlead_agent.files.journal import Journal
from fairlead_agent.node.health.monitor import HealthMonitor
from fairlead_agent.node.metrics.exposition import NodeFacts, Owner, exposition
from fairlead_agent.settings import Settings
from fairlead_agent.shell.gpu_use import GpuSampler


class MetricsFacts(NamedTuple):
    """Parts of an agent that the metrics page is made of."""

    settings: Settings
    core: Reconciler
    outbox: Outbox
    journal: Journal
    devices: Devices
    sampler: GpuSampler
    monitor: HealthMonitor

    def page(self) -> bytes:
        """Return the node's exposition now."""
        return exposition(self.look())

    def look(self) -> NodeFacts:
        """Return all facts that the exposition shows."""
        devices, sampler, monitor, ledger = self.devices, self.sampler, self.monitor, self.core.ledger
        taken = sampler.taken_s
        return NodeFacts(
            node=self.settings.node,
            devices=devices.name,
            simulated=devices.simulated,
            driver_version=devices.labels().get("nvidia.com/cuda.driver-version.full", ""),
            gpus=devices.gpus(),
            samples=sampler.newest,
            age_s=None if taken is None else time.monotonic() - taken,
            health={each.uuid: each for each in monitor.gpus},
            xids=monitor.xids,
            holders=self._holders(),
            uses=sampler.uses(),
            resources=sampler.resources,
            owners=self._owners(),
            runs=Counter(run.phase for run in ledger.runs.values()),
            unconfirmed=ledger.reported - self.outbox.confirmed,
            gate_closed=monitor.gate.closed,
            disk_full=self.journal.reserve.short,
            batches=sampler.batches,
        )

    def _holders(self) -> dict[str, list[Owner]]:
        """Return {UUID: runs that hold it, oldest first}. GPUs that an ended run may still occupy are its own until it is clean."""
        found: dict[str, list[Owner]] = {}
        for run in self.core.ledger.runs.values():
            if run.phase != "clean":
                for uuid in run.devices:
                    found.setdefault(uuid, []).append(self._owner(run))
        return found

    def _owners(self) -> dict[str, Owner]:
        return {f"{run.key.job}.{run.key.attempt}": self._owner(run) for run in self.core.ledger.runs.values()}

    def _owner(self, run: RunEntry) -> Owner:
        order = (self.core.wanted or {}).get(run.key)
        key = run.key
        return Owner(key.job, key.attempt, key.rank, *((order.user, order.queue) if order is not None else ()))
