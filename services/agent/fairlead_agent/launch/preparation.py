"""Steps between an order and its start for several nodes or several processes: the rendezvous of the ranks, the box next to
the run, MPI's daemons. This module is the shell of its package; it calls and answers other nodes' agents on the bus.

Rendezvous: no rank of a gang starts its program before every rank's node has reported that it is ready.

Without it the first ranks wait in their rendezvous, and give up, while another still pulls its image. The ranks meet at
the node of rank 0: the others ask it again and again, until it answers that all are ready. A rank that asks too
early is asked to come again; a rank that is ordered to stop meanwhile stops. The rendezvous is not stored: a new process
of rank 0's agent ends the runs it had not started.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import structlog

from fairlead_agent.core.runs import RunKey, key_of
from fairlead_agent.launch import mpi_daemons as boxes
from fairlead_agent.launch.batch_variables import node_lines
from fairlead_agent.launch.mpi_daemons import Daemons
from fairlead_agent.launch.plan import Launch, Unlaunchable, hostfile
from fairlead_bus.port import Bus, Message, Subscription, Unavailable
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import RunOrder, encode_order
from fairlead_schemas.wire.rank_rpc import (
    DaemonEnded,
    DaemonWanted,
    GangAnswer,
    GangCall,
    RankReady,
    decode_answer,
    decode_reply,
    encode_gang,
)

#: An answer is held back so long while others are missing.
HOLD_S = 2.0
ANSWER_S = 5.0
#: Pause before asking again, and before looking again whether the run is still wanted.
AGAIN_S = 0.3
#: The longest that ranks wait for each other: an image that takes longer is not going to come.
MEETING_S = 1800.0
LOGGED_EVERY_S = 60.0
NAMED_MAX = 5

_log = structlog.get_logger()


class _Gathering:
    """Rank 0's list of who is there."""

    def __init__(self, order: RunOrder) -> None:
        self.order = order
        self.ready: set[int] = set()
        self.complete = asyncio.Event()

    def add(self, rank: int) -> None:
        self.ready.add(rank)
        if len(self.ready) == len(self.order.nodes):
            self.complete.set()

    def missing(self) -> str:
        absent = [f"rank {rank} on {node}" for rank, node in enumerate(self.order.nodes) if rank not in self.ready]
        more = f" and {len(absent) - NAMED_MAX} more" if len(absent) > NAMED_MAX else ""
        return ", ".join(absent[:NAMED_MAX]) + more


class Rendezvous:
    """Rendezvous of the ranks of one node's runs. `may_start` returns True if a run may still be started, and ends one that
    may not."""

    def __init__(
        self, bus: Bus, node: str, may_start: Callable[[RunKey], bool], *, longest_s: float = MEETING_S
    ) -> None:
        self._bus, self._node, self._may_start, self._longest_s = bus, node, may_start, longest_s
        self._gatherings: dict[RunKey, _Gathering] = {}

    async def meet(self, order: RunOrder) -> bool:
        """Wait until every rank is ready. Return False if the run is not wanted any more, which was then reported. Raises
        Unlaunchable.
        """
        key, waited = key_of(order), self._here(order) if order.rank == 0 else self._there(order)
        try:
            async with asyncio.timeout(self._longest_s):
                return await self._while_wanted(key, waited)
        except TimeoutError as error:
            gathering = self._gatherings.get(key)
            who = gathering.missing() if gathering is not None else f"not all of {len(order.nodes)} ranks"
            raise Unlaunchable(f"not ready within {self._longest_s:g} s: {who}") from error

    def answer(self, order: RunOrder, call: RankReady) -> Coroutine[Any, Any, GangAnswer]:
        """Another rank of the run of this order, whose rank 0 is here, is ready."""
        return self._answer(order, call)

    def over(self, key: RunKey) -> None:
        """The run has ended."""
        self._gatherings.pop(key, None)

    async def _while_wanted(self, key: RunKey, waited: Coroutine[Any, Any, None]) -> bool:
        task = asyncio.ensure_future(waited)
        try:
            while not task.done():
                if not self._may_start(key):
                    return False
                await asyncio.wait({task}, timeout=AGAIN_S)
            task.result()
            return self._may_start(key)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _here(self, order: RunOrder) -> None:
        gathering = self._gatherings.setdefault(key_of(order), _Gathering(order))
        gathering.add(0)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOGGED_EVERY_S):
                    await gathering.complete.wait()
                return
            _log.info("a run waits for its other ranks", run=key_of(order).name, missing=gathering.missing())

    async def _there(self, order: RunOrder) -> None:
        subject = subjects.gang(self._node, order.nodes[0])
        call = RankReady(job=order.job, attempt=order.attempt, epoch=order.epoch, rank=order.rank)
        while True:
            with contextlib.suppress(Unavailable, msgspec.MsgspecError):
                answer = decode_answer(await self._bus.request(subject, encode_gang(call), timeout_s=ANSWER_S))
                if answer.go:
                    return
            await asyncio.sleep(AGAIN_S)

    async def _answer(self, order: RunOrder, call: RankReady) -> GangAnswer:
        gathering = self._gatherings.setdefault(key_of(order), _Gathering(order))
        gathering.add(call.rank)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HOLD_S):
                await gathering.complete.wait()
        return GangAnswer(go=gathering.complete.is_set())


#: Where a container sees its box.
BOX_IN_CONTAINER = "/run/fairlead/launch"

_order = msgspec.json.Decoder(RunOrder)


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
        hosts, nodes = order.hosts or ("localhost",), order.nodes or (self._node,)
        try:
            lines = node_lines(nodes, hosts, launch.ranks.slots)
            boxes.fill(path, hosts=(*hosts, *nodes), hostfile=hostfile(hosts, launch.ranks.slots), nodes=lines)
            if launch.ranks.is_led and order.nodes:
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
