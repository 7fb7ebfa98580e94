"""Destinations of all rules, woken by the events that concern them. Loaded with the first rule. Start at `Dispatch.run`."""

import asyncio
import gc
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor

import msgspec
import structlog

from fairlead_bus.bus_faults import retry_until_available
from fairlead_bus.log import Folded
from fairlead_bus.port import Bus, BusError, Message
from fairlead_gateway.access.people import PeopleStore
from fairlead_gateway.notify.delivery import Destination, Means
from fairlead_gateway.notify.notice_feed import NoticeFeed
from fairlead_gateway.notify.rules import Facts, Notice, concerns, is_wide
from fairlead_gateway.notify.settings import NotifySettings
from fairlead_gateway.notify.store import RuleStore
from fairlead_gateway.notify.webhook import SendFailed
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_schemas.http.notifications import DeliveryTest
from fairlead_schemas.units.timestamps import rfc3339

log = structlog.get_logger()

#: Between two looks at the views, until they have reached the end of the log.
CATCH_UP_S = 0.05
#: Attempts of all destinations at once.
SLOTS_MAX = 256
TEST_TYPE = "fairlead.notification.test.v1"


class DeliveryTestRequest(msgspec.Struct, frozen=True):
    """Request of rpc("notifier", "test"): the id of a rule."""

    id: str


class Dispatch:
    """All destinations of a notifier that leads. It takes what `live` folds. `clock`: Unix ns."""

    def __init__(
        self,
        bus: Bus,
        live: LiveViews,
        store: RuleStore,
        settings: NotifySettings,
        threads: Executor,
        clock: Callable[[], int],
    ) -> None:
        self._live = live
        self._store = store
        self._feed = NoticeFeed(bus, live.views, settings.ring_max)
        live.on_folded = self._folded

        async def address_of(principal: str) -> str:
            row = await PeopleStore(bus).find(principal)  # a new one has nothing in memory that may be old
            return row.email if row is not None else ""

        slots = asyncio.Semaphore(SLOTS_MAX)
        self._means = Means(settings, live.views, self._feed, store, threads, clock, address_of, slots)
        self._destinations: dict[str, Destination] = {}
        #: {owner: destinations of rules about the owner's own jobs}, and those that may be concerned by jobs of others.
        self._narrow: dict[str, list[Destination]] = {}
        self._wide: list[Destination] = []

    async def run(self, changed: asyncio.Event) -> None:
        """Notify while there are rules, which `changed` says to look at again. Raises LogDamaged."""
        # Nothing is sent by rights of the past.
        while not self._live.caught_up:  # noqa: ASYNC110 -- the views have one listener, which is `_folded`
            await asyncio.sleep(CATCH_UP_S)
        checkpoints = asyncio.create_task(self._checkpoints())
        try:
            while self._store.rules:
                changed.clear()
                await self._follow_rules()
                await changed.wait()
        finally:
            checkpoints.cancel()

    async def stop(self) -> None:
        """End all deliveries."""
        await asyncio.gather(*(each.stop() for each in self._destinations.values()))
        self._live.on_folded = None

    async def _follow_rules(self) -> None:
        rules = self._store.rules
        for gone in self._destinations.keys() - rules.keys():
            await self._destinations.pop(gone).stop()
        for rule in [rule for rule in rules.values() if rule.id not in self._destinations]:
            delivery = await retry_until_available(lambda rule=rule: self._store.delivery(rule.id))
            if rule.id in self._store.rules:
                destination = self._destinations[rule.id] = Destination(rule, self._means, delivery)
                destination.wake(destination.place)
        self._narrow, self._wide = {}, []
        for each in self._destinations.values():
            (self._wide if is_wide(each.rule) else self._narrow.setdefault(each.rule.owner, [])).append(each)

    def _folded(self, batch: Sequence[Folded]) -> None:
        for notice, facts in self._feed.take(batch):
            for each in self._candidates(notice, facts):
                if each.is_idle and notice.place > each.place and (facts is None or concerns(each.rule, notice, facts)):
                    each.wake(notice.place - 1)

    def _candidates(self, notice: Notice, facts: Facts | None) -> Iterable[Destination]:
        if not notice.job or facts is None:
            return self._destinations.values()
        return (*self._narrow.get(facts.target.owner, ()), *self._wide)

    async def _checkpoints(self) -> None:
        while True:
            await asyncio.sleep(self._means.settings.checkpoint_s)
            for each in list(self._destinations.values()):
                try:
                    await each.checkpoint()
                except BusError as error:
                    log.warning("places not stored", reason=str(error))
                    break
            gc.collect()  # the process leaves full collections to those who know when they cost nothing

    async def test(self, message: Message) -> bytes:
        """Send one message to a rule's destination, and answer if it was delivered. A destination that was failing goes on at once."""
        request = msgspec.json.decode(message.payload, type=DeliveryTestRequest)
        destination = self._destinations.get(request.id)
        if destination is None:
            return msgspec.json.encode(
                DeliveryTest(sent=False, error="the notifier does not have this rule yet; try again")
            )
        now_ns = self._means.clock()
        try:
            await _send_test(destination, now_ns)
        except SendFailed as error:
            return msgspec.json.encode(DeliveryTest(sent=False, error=str(error)))
        destination.retry()
        return msgspec.json.encode(DeliveryTest(sent=True))


async def _send_test(destination: Destination, now_ns: int) -> None:
    line = "This is a test of a notification."
    if destination.rule.channel == "mail":
        await destination.mail(f"{destination.rule.id}.test.{now_ns}", [f"{rfc3339(now_ns)}  {line}"])
        return
    document = {
        "specversion": "1.0",
        "id": f"test-{now_ns}",
        "source": "/fairlead/notifier",
        "type": TEST_TYPE,
        "time": rfc3339(now_ns),
        "datacontenttype": "application/json",
        "data": {"rule": destination.rule.id},
        "summary": line,
    }
    await destination.probe(f"test_{now_ns}", msgspec.json.encode(document))
