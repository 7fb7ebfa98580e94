"""Delivery of one rule's messages: in the order of the log, each until it is delivered, then the next.

A destination is a place in the log. It reads what follows, sends what concerns its rule, and stores its place after each message: a crash
between the two repeats that message under its id, and loses none. Each destination has a task of its own while it is behind, so a
slow or dead receiver delays no other; while it is not, it costs nothing. Start at `Destination.wake`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple

import msgspec
import structlog
from msgspec import structs

from fairlead_bus.port import BusError, Unavailable
from fairlead_gateway.access.caller import OPEN_CALLER, Caller
from fairlead_gateway.access.event_sight import EventSubject, cloud_event, event_filter
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.notify.mail import EVENTS_MAX, mail_of, send_mail
from fairlead_gateway.notify.notice_feed import NoticeFeed
from fairlead_gateway.notify.rules import Facts, Notice, Rule, concerns, pause_s, place_of, sequence_of, summary
from fairlead_gateway.notify.settings import NotifySettings
from fairlead_gateway.notify.store import Delivery, RuleStore
from fairlead_gateway.notify.webhook import SendFailed, WebhookSender
from fairlead_gateway.views.fold import Views
from fairlead_rights.access_list import Target
from fairlead_schemas.policies.rights import Verb
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339

log = structlog.get_logger()

#: Notices that a destination takes from the log at once.
STEP = 16
#: Reason of a failure for an owner of whom access knows nothing: skipping their events would look as if there were none.
UNKNOWN_OWNER = "the notifier knows nobody of your name: without sign-on it needs FAIRLEAD_SIGN_ON=off, too"
#: Between two attempts to store a place.
STORE_RETRY_S = 0.2


class RuleOwner(Caller):
    """Owner of a rule, by the rights of now. Unlike other callers it acts by no credential: a rule outlives the sign-in that made it."""

    def may(self, verb: Verb, target: Target) -> bool:
        """Return True if the owner may use the verb on the target now; False for a suspended one."""
        assert self._views is not None, "without sign-on OPEN_CALLER stands for everybody"
        return self._views.access.access.may(self.principal, verb, target)


class Means(NamedTuple):
    """Everything that destinations share."""

    settings: NotifySettings
    views: Views
    feed: NoticeFeed
    store: RuleStore
    threads: Executor
    #: Unix ns.
    clock: Callable[[], int]
    #: Returns the mail address of a principal; "" for none. Raises Unavailable.
    address_of: Callable[[str], Awaitable[str]]
    #: Attempts at once.
    slots: asyncio.Semaphore


class Destination:
    """Destination of one rule. `start` first."""

    def __init__(self, rule: Rule, means: Means, delivery: Delivery | None) -> None:
        self.rule = rule
        self._means = means
        self.delivery = delivery or Delivery(place=place_of(rule.after))
        #: Everything up to here is delivered, or concerns the rule not.
        self.place = self.delivery.place
        self._task: asyncio.Task[None] | None = None
        self._poked = asyncio.Event()
        self._sender: WebhookSender | None = None
        #: Loop time before which no further mail is sent.
        self._mail_at_s = 0.0

    @property
    def is_idle(self) -> bool:
        """True while nothing waits to be sent."""
        return self._task is None

    def wake(self, place: int) -> None:
        """Look for messages behind a place, or behind the own one if that is later. A destination at work finds them by itself."""
        if self._task is None:
            self.place = max(self.place, place)
            self._task = asyncio.create_task(self._run())

    def retry(self) -> None:
        """End a pause after failures: the destination counts as one that has just begun to fail."""
        self.delivery = structs.replace(self.delivery, failures=0, failing_since_ns=0)
        self._poked.set()

    async def stop(self) -> None:
        """End the work. The place is stored already."""
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._task = None

    async def checkpoint(self) -> None:
        """Store the place of an idle destination, so that a restart need not read the log from its last message on. Raises BusError."""
        head = max(self.place, self._means.feed.head)
        if self.is_idle and sequence_of(head) != sequence_of(self.delivery.place):
            await self._means.store.note(self.rule.id, structs.replace(self.delivery, place=head))
            self.delivery = structs.replace(self.delivery, place=head)

    # ------------------------------------------------------------------------------- what waits

    async def _run(self) -> None:
        if self.delivery.state == "paused":
            await self._wait(None)
        while True:
            try:
                return await self._drain()
            except Exception as error:
                # The owner sees that something is wrong, and the others' destinations go on.
                log.exception("delivery failed by an error of the notifier", rule=self.rule.id)
                await self._failed(SendFailed(f"an error of the notifier ({type(error).__name__}): its log has more"))

    async def _drain(self) -> None:
        """Send everything up to the end of the log."""
        try:
            while batch := await self._next():
                while not self._knows_owner():
                    await self._failed(SendFailed(UNKNOWN_OWNER))
                if self.rule.channel == "mail":
                    await self._mail(batch)
                else:
                    for notice, facts in batch:
                        await self._post(notice, facts)
        finally:
            if self._sender is not None:
                await self._sender.close()
                self._sender = None

    async def _next(self) -> list[tuple[Notice, Facts]]:
        """Return the next notices that concern the rule, some at a time; [] at the end of the log, where the work ends."""
        feed, most = self._means.feed, EVENTS_MAX if self.rule.channel == "mail" else STEP
        while True:
            if self.place < feed.first:
                found, reached = await feed.past(self.place, most, self._may_concern)
            elif found := feed.after(self.place, most):
                reached = found[-1][0].place
            else:
                # No await since the look: a notice that comes next finds no task.
                self.place, self._task = max(self.place, feed.head), None
                return []
            mine: list[tuple[Notice, Facts]] = []
            for notice, facts in found:
                if (known := await self._mine(notice, facts)) is not None:
                    mine.append((notice, known))
            if mine:
                return mine
            self.place = reached

    def _may_concern(self, notice: Notice) -> bool:
        return not set(self.rule.kinds).isdisjoint(notice.kinds)

    async def _mine(self, notice: Notice, facts: Facts | None) -> Facts | None:
        """Return the facts of a notice if it concerns the rule, else None."""
        if not self._may_concern(notice):
            return None
        while facts is None:
            try:
                facts = await self._means.feed.retired_facts(notice.job)
            except Unavailable:
                await self._failed(
                    SendFailed(f"the facts of job {notice.job} cannot be had: telemetry does not answer")
                )
        return facts if concerns(self.rule, notice, facts) else None

    # ------------------------------------------------------------------------------- messages

    def _knows_owner(self) -> bool:
        """Return False for an owner who was never admitted: the rule was made without sign-on, and this notifier has it."""
        return self._means.settings.is_open or self.rule.owner in self._means.views.access.kinds

    def _shown(self, notice: Notice, facts: Facts) -> dict[str, Any] | None:
        """Return a notice as a CloudEvent, as the owner may see it now; None: not at all."""
        views = self._means.views
        caller = OPEN_CALLER if self._means.settings.is_open else RuleOwner(views, principal=self.rule.owner)
        sight = Sight(views, caller)
        sight.retired[notice.job] = facts.target
        about = EventSubject(
            notice.type, notice.cause, job=notice.job, node=notice.node, queue=notice.queue, pool=notice.pool
        )
        event = cloud_event(notice.id, notice.writer, rfc3339(notice.at_ns), about, msgspec.Raw(notice.event))
        shown = event_filter(sight)(about, event)
        if shown is None:
            return None
        document: dict[str, Any] = msgspec.json.decode(shown)
        document["summary"] = summary(notice, facts, document["data"])
        target = facts.target
        named = {"jobname": facts.name, "queue": target.queue, "project": target.project} if notice.job else {}
        return document | {key: value for key, value in named.items() if value}

    async def _post(self, notice: Notice, facts: Facts) -> None:
        if self._sender is None:
            self._sender = self._new_sender()
        while (document := self._shown(notice, facts)) is not None:
            try:
                await self._attempt(self._sender, webhook_id(notice.id), msgspec.json.encode(document))
                break
            except SendFailed as error:
                await self._failed(error)
        await self._reached(notice.place, sent=0 if document is None else 1)

    def _new_sender(self) -> WebhookSender:
        means, rule = self._means, self.rule
        return WebhookSender(
            rule.to, rule.secret, means.settings.allowed, means.threads, lambda: means.clock() // SECOND_NS
        )

    async def _attempt(self, sender: WebhookSender, message_id: str, body: bytes) -> None:
        async with self._means.slots:
            await sender.send(message_id, body, self._means.settings.attempt_s)

    async def probe(self, message_id: str, body: bytes) -> None:
        """Make one attempt to send a webhook that is no event. Raise SendFailed."""
        sender = self._new_sender()
        try:
            await self._attempt(sender, message_id, body)
        finally:
            await sender.close()

    async def _mail(self, batch: list[tuple[Notice, Facts]]) -> None:
        rest_s = self._mail_at_s - asyncio.get_running_loop().time()
        if rest_s > 0:
            await asyncio.sleep(rest_s)
            return  # what came meanwhile is in the same mail
        while lines := [line for notice, facts in batch if (line := self._line(notice, facts))]:
            try:
                await self.mail(f"{self.rule.id}.{batch[0][0].id}", lines)
                break
            except SendFailed as error:
                await self._failed(error)
        self._mail_at_s = asyncio.get_running_loop().time() + self._means.settings.mail_every_s
        await self._reached(batch[-1][0].place, sent=len(lines))

    def _line(self, notice: Notice, facts: Facts) -> str:
        document = self._shown(notice, facts)
        return "" if document is None else f"{document['time']}  {document['summary']}"

    async def mail(self, message_id: str, lines: list[str]) -> None:
        """Make one attempt to send a mail. Raise SendFailed."""
        means = self._means
        if (server := means.settings.mail) is None:
            raise SendFailed("no mail server is configured (FAIRLEAD_SMTP)")
        to = self.rule.to or await self._own_address()
        mail = mail_of(server, to, message_id, lines, means.clock() / SECOND_NS)
        async with means.slots:
            await send_mail(server, mail, means.threads, means.settings.attempt_s)

    async def _own_address(self) -> str:
        try:
            address = await self._means.address_of(self.rule.owner)
        except Unavailable:
            raise SendFailed("your mail address cannot be read now") from None
        if not address:
            raise SendFailed("this cluster knows no mail address of yours")
        return address

    # ------------------------------------------------------------------------------- outcomes

    async def _reached(self, place: int, sent: int) -> None:
        """Store that everything up to a place is delivered; it is stored before anything else is sent."""
        self.place = place
        now_ns = self._means.clock() if sent else self.delivery.sent_ns
        await self._note(Delivery(place=place, sent=self.delivery.sent + sent, sent_ns=now_ns))

    async def _failed(self, error: SendFailed) -> None:
        """Store why an attempt failed, and wait until it is time for the next one."""
        before, now_ns, settings = self.delivery, self._means.clock(), self._means.settings
        since_ns = before.failing_since_ns or now_ns
        is_over = error.gone or now_ns - since_ns > settings.pause_after_s * SECOND_NS
        after = structs.replace(
            before,
            place=self.place,
            state="paused" if is_over else "failing",
            failures=before.failures + 1,
            failing_since_ns=since_ns,
            error=str(error),
        )
        await self._note(after)
        if before.state != after.state:
            log.warning("destination fails", rule=self.rule.id, state=after.state, reason=str(error))
        await self._wait(None if is_over else pause_s(after.failures, settings.retry_first_s, settings.retry_most_s))

    async def _wait(self, seconds: float | None) -> None:
        """Wait so long (None: without end), or until `retry`."""
        try:
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        except TimeoutError:
            pass
        self._poked.clear()

    async def _note(self, delivery: Delivery) -> None:
        self.delivery = delivery
        while True:
            try:
                return await self._means.store.note(self.rule.id, delivery)
            except BusError:
                await asyncio.sleep(STORE_RETRY_S)


def webhook_id(event_id: str) -> str:
    """Return the `webhook-id` of an event, the same at every attempt: without full stops, which delimit what is signed."""
    return f"evt_{event_id.replace('.', '_')}"
