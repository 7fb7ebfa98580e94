"""Steps between an order and its start for several nodes or several processes: the rendezvous of the ranks, the box next to
the run, MPI's daemons. This module is the shell of its package; it calls and answers other nodes' agents on the bus.
"""

import asyncio
import shutil
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fairlead_agent.core.runs import RunKey, key_of
from fairlead_agent.launch import mpi_daemons as boxes
from fairlead_agent.launch.mpi_daemons import Daemons
from fairlead_agent.launch.plan import Launch, Unlaunchable, hostfile
from fairlead_agent.launch.rendezvous import Rendezvous
from fairlead_bus.port import Bus, Message, Subscription
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import RunOrder, encode_order
from fairlead_schemas.wire.rank_rpc import (
    DaemonEnded,
    DaemonWanted,
    GangAnswer,
    GangCall,
    RankReady,
    decode_reply,
    encode_gang,
)

#: Where a container sees its box.
BOX_IN_CONTAINER = "/run/fairlead/launch"

_order = msgspec.json.Decoder(RunOrder)
_log = structlog.get_logger()


def box_path(directory: Path) -> str:
    """Return the path pattern of the boxes of a node's runs, with {run} for the run's name."""
    return f"{(directory / 'launch').absolute()}/{{run}}/box"


class LaunchPreparation:
    """Preparation of runs of several ranks on one node. `may_start` returns True if a run may still be started, and ends one that may
    not.
    """

    def __init__(
        self,
        bus: Bus,
        node: str,
        directory: Path,
        *,
        may_start: Callable[[RunKey], bool],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._bus, self._node, self._directory = bus, node, directory / "launch"
        self._rendezvous = Rendezvous(bus, node, may_start)
        self._daemons = Daemons(bus, node, spawn)
        #: Of gangs that are starting or running here.
        self._orders: dict[RunKey, RunOrder] = {}
        #: Runs that have a box.
        self._boxed: set[RunKey] = set()
        self._subscription: Subscription | None = None

    async def open(self, running: Collection[RunKey]) -> None:
        """Start answering other agents; reopen the boxes of running runs, and remove the others."""
        for path in self._directory.iterdir() if self._directory.exists() else ():
            if not any(key.name == path.name for key in running):
                await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
        for key in running:
            self._resume(key)
        self._subscription = await self._bus.serve(subjects.rpc_node(self._node, "gang"), self._on_call)

    async def close(self) -> None:
        """Stop answering other agents; runs continue."""
        if self._subscription is not None:
            await self._subscription.close()
        self._daemons.close()

    async def meet(self, order: RunOrder) -> bool:
        """Wait for the other ranks; False when the run is not wanted any more. Raises Unlaunchable."""
        return await self._rendezvous.meet(order)

    def expect(self, order: RunOrder) -> None:
        """The order of a gang is here: others may ask about it from now on."""
        self._orders[key_of(order)] = msgspec.structs.replace(order, spec=msgspec.Raw(b"null"))

    def prepare(self, launch: Launch) -> None:
        """Put the files that the run's launcher needs into its box. Raises Unlaunchable."""
        if not launch.box:
            return
        self._boxed.add(launch.key)
        order, path = msgspec.structs.replace(launch.order, spec=msgspec.Raw(b"null")), Path(launch.box)
        hosts = order.hosts or ("localhost",)
        try:
            boxes.fill(path, hosts=hosts, hostfile=hostfile(hosts, launch.ranks.slots))
            if launch.ranks.launcher == "mpi" and order.nodes:
                (path.parent / "order").write_bytes(bytes(encode_order(order)))
                self._daemons.open(order, path)
        except OSError as error:
            raise Unlaunchable(f"cannot create the launcher directory: {error}") from error

    def over(self, key: RunKey) -> None:
        """The run has ended: nothing of it is needed any more."""
        self._orders.pop(key, None)
        self._rendezvous.over(key)
        self._daemons.over(key)
        if key in self._boxed:
            self._boxed.discard(key)
            path = self._directory / key.name
            asyncio.get_running_loop().run_in_executor(None, lambda: shutil.rmtree(path, ignore_errors=True))

    def _resume(self, key: RunKey) -> None:
        path = self._directory / key.name
        if path.exists():
            self._boxed.add(key)
        try:
            order = _order.decode((path / "order").read_bytes())
            self._daemons.open(order, path / "box")
        except FileNotFoundError:
            return  # no MPI run
        except (OSError, msgspec.MsgspecError) as error:
            _log.error(
                "an MPI run's box cannot be used: its mpirun starts nothing more", run=key.name, reason=str(error)
            )
            return
        self._orders[key] = order

    async def _on_call(self, message: Message) -> bytes:
        try:
            speaker, call = decode_reply(message.payload)
        except msgspec.MsgspecError as error:
            return encode_gang(GangAnswer(refusal=f"expected a GangCall: {error}"))
        return encode_gang(await self._answer(call, speaker))

    async def _answer(self, call: GangCall, speaker: str) -> GangAnswer:
        order = next(
            (each for key, each in self._orders.items() if (key.job, key.attempt) == (call.job, call.attempt)), None
        )
        if order is None or order.epoch < call.epoch:
            return GangAnswer()  # it is about to come; or it has gone, and so has who asks, soon
        if order.epoch > call.epoch or not 0 <= call.rank < len(order.nodes) or order.nodes[call.rank] != speaker:
            return GangAnswer(refusal=f"{speaker} holds no rank {call.rank} of {call.job}.{call.attempt}")
        to_leader = not isinstance(call, DaemonWanted)
        if to_leader != (order.rank == 0) or (not to_leader and call.rank != 0):
            return GangAnswer(refusal=f"rank {order.rank} is not asked this")
        match call:
            case RankReady():
                return await self._rendezvous.answer(order, call)
            case DaemonWanted():
                return self._daemons.wanted(order, call)
            case DaemonEnded():
                return self._daemons.ended(order, call)
