"""The talk with the spawner: a listing asked for, what is told meanwhile held back until it was dealt with, and the talk taken up again
after it has broken off, with the same spawner or the next one.
"""

import asyncio
from collections.abc import Callable

import structlog

from fairlead_agent.runtimes.port import RuntimeUnfit
from fairlead_agent.runtimes.process.link import PROTOCOLS, Ended, Event, Failed, Listing, SpawnerLink, Started

LISTING_S = 30.0
LISTING_TRIES = 5
RECONNECT_S = 0.5

_log = structlog.get_logger()


class Conversation:
    """`heard` gets what is told of runs, in its order; `again` the listing that a talk begins with after it was broken off."""

    def __init__(
        self, home: str, heard: Callable[[Started | Failed | Ended], None], again: Callable[[Listing], None]
    ) -> None:  # fmt: skip
        self._home, self._tell, self._again = home, heard, again
        #: False while it is broken off: what is asked for waits with whoever asks.
        self.ready = False
        self._held: list[Event] | None = None
        self._listing: asyncio.Future[Listing] | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._link: SpawnerLink

    async def open(self) -> None:
        """Raises RuntimeUnfit where no spawner can be started."""
        self._loop = asyncio.get_running_loop()
        self._link = SpawnerLink(self._home, self._heard, self._lost)
        try:
            await self._link.connect()
        except OSError as error:
            raise RuntimeUnfit(f"no spawner answers in {self._home}: {error}; see spawner.log there") from error
        self.ready = True

    def send(self, request: dict[str, object]) -> None:
        """Lost while it is broken off. Raises ValueError, TypeError for what cannot be written as JSON."""
        self._link.send(request)

    async def listing(self) -> Listing:
        """Everything that the spawner knows now. What it tells from here on is held back until whoever asked waits for the first time.
        Raises RuntimeUnfit."""
        for _ in range(LISTING_TRIES):  # an idle spawner may end while we connect
            if self._reconnecting is not None:
                await self._reconnecting
            try:
                return await self._list()
            except ConnectionError:
                continue
            except TimeoutError:
                break
        raise RuntimeUnfit(f"the spawner in {self._home} does not answer; see spawner.log there")

    def understood(self, listing: Listing) -> Listing:
        """The same. Raises RuntimeUnfit for one of a spawner that we might not understand."""
        if listing.protocol not in PROTOCOLS:
            raise RuntimeUnfit(
                f"the spawner in {self._home} speaks version {listing.protocol} of its protocol, this agent knows "
                f"{PROTOCOLS[0]} to {PROTOCOLS[-1]}: a newer agent has started it; start that version again, or drain the node first"
            )
        return listing

    def close(self) -> None:
        """What was sent is written; the spawner stays."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self._link.close()

    def _heard(self, event: Event) -> None:
        if self._held is not None:
            self._held.append(event)
        elif not isinstance(event, Listing):
            self._tell(event)
        elif self._listing is not None and not self._listing.done():
            self._held = []  # until who asked has dealt with it
            self._listing.set_result(event)

    async def _list(self) -> Listing:
        self._listing = self._loop.create_future()
        self._link.send({"op": "list"})
        async with asyncio.timeout(LISTING_S):
            listing = await self._listing
        self._loop.call_soon(self._go_on)  # after what the caller does with it, up to its next wait
        return listing

    def _go_on(self) -> None:
        held, self._held = self._held, None
        for event in held or ():
            self._heard(event)

    def _lost(self) -> None:
        self.ready, self._held = False, None
        if self._listing is not None and not self._listing.done():
            self._listing.set_exception(ConnectionError("the spawner has gone"))
        if self._reconnecting is None or self._reconnecting.done():
            self._reconnecting = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        while not self.ready:
            try:
                await self._link.connect()
                listing = await self._list()
                self.ready = True
                self._again(listing)
            except (OSError, TimeoutError) as error:
                _log.error("no spawner answers; runs go on", directory=self._home, reason=str(error))
                self._link.close()
                await asyncio.sleep(RECONNECT_S)
