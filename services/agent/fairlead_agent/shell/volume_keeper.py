"""Volumes of a node's runs: asks a gateway which of them a run may have when it starts, and again while it runs, since a quota may grow.

The runtime mounts; this asks. A right that is taken away counts at the next start: what a run has mounted it keeps. Start at
`VolumeKeeper.granted`.
"""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec
import structlog

from fairlead_agent.core.runs import RunKey
from fairlead_agent.launch.plan import Launch, Unlaunchable
from fairlead_agent.runtimes.port import Runtime, VolumeHoldings
from fairlead_agent.runtimes.stored_volumes import StoredVolumes, VolumeUnusable
from fairlead_bus.port import Bus, BusError
from fairlead_schemas.policies.storage import volume_variable
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.volumes import AskVolumes, VolumeGrant, VolumeGrants, decode_grants, encode_volumes

ANSWER_S, AGAIN_S = 2.0, 0.2
#: Between two questions about volumes that are mounted.
LOOK_S = 20.0

_log = structlog.get_logger()


class VolumeKeeper:
    """Asker of one node. `places`: volumes for runs without containers. `may_start`: as of RunStarter."""

    def __init__(
        self, bus: Bus, node: str, runtime: Runtime, places: StoredVolumes, may_start: Callable[[RunKey], bool]
    ) -> None:
        self._bus, self._subject, self._runtime, self._places = bus, subjects.volumes(node), runtime, places
        self._may_start = may_start

    async def granted(self, launch: Launch) -> Launch | None:
        """Return a run with the volumes that it may have; None for one that may not be started any more. Raises Unlaunchable.

        The gateway may learn later than this node that the run is placed here, and may be away: the run waits for its answer.
        """
        while self._may_start(launch.key):
            answer = await self._ask(launch.key)
            if answer is not None and answer.refused:
                raise Unlaunchable(answer.refused, "job")
            if answer is not None and not answer.unknown:
                found = {each.name: each for each in answer.volumes}
                for volume in launch.volumes:
                    if volume.made and getattr(found.get(volume.name), "made", 0) != volume.made:
                        raise Unlaunchable(f'volume "{volume.name}" of this run is not known to the cluster', "job")
                launch = launch._replace(stored=found)
                return launch if self._runtime.holdings else await self._as_paths(launch, answer)
            await asyncio.sleep(AGAIN_S)
        return None

    async def _as_paths(self, launch: Launch, answer: VolumeGrants) -> Launch:
        """Return a run without a container, which gets the paths of its volumes on this node. Raises Unlaunchable."""
        if answer.several_users:
            raise Unlaunchable(
                "its volumes need containers: this node runs the jobs of several people as processes of one user, where everyone could open "
                "everyone's files; ask for a node with nodeSelector: {fairlead/runtime: docker}",
                "job",
            )
        for grant in answer.volumes:
            try:
                path = await asyncio.to_thread(self._places.path, grant)
            except VolumeUnusable as error:
                raise Unlaunchable(str(error), error.fault) from error
            launch.env[volume_variable(grant.name)] = path
        return launch

    async def run(self) -> None:
        """Look at what is mounted, without end."""
        while True:
            await asyncio.sleep(LOOK_S)
            if (holdings := self._runtime.holdings) is not None:
                await self.look(holdings)

    async def look(self, holdings: VolumeHoldings) -> None:
        """Give the volumes of runs the quotas that they have now."""
        for key, held in (await asyncio.to_thread(holdings.grants)).items():
            answer = await self._ask(key)
            if answer is None or answer.unknown or answer.refused:
                continue
            now = {(each.name, each.made): each for each in answer.volumes}
            wanted = [now.get((each.name, each.made), each) for each in held]
            if wanted != held:
                await asyncio.to_thread(self._bound, holdings, key, held, wanted)

    def _bound(self, holdings: VolumeHoldings, key: RunKey, held: list[VolumeGrant], wanted: list[VolumeGrant]) -> None:
        for before, after in zip(held, wanted, strict=True):
            if before.quota_bytes != after.quota_bytes:
                try:
                    holdings.stored.bound(after)
                except VolumeUnusable as error:  # noted all the same: a kernel that refuses would refuse at each look
                    _log.warning("a volume could not be given its quota", volume=after.name, reason=str(error))
        holdings.note(key, wanted)

    async def _ask(self, key: RunKey) -> VolumeGrants | None:
        question = encode_volumes(AskVolumes(job=key.job, attempt=key.attempt, rank=key.rank))
        with contextlib.suppress(BusError, msgspec.MsgspecError):
            return decode_grants(await self._bus.request(self._subject, question, timeout_s=ANSWER_S))
        return None
