"""Rules of notifications over HTTP: list, make, remove, test. Everybody has rules of their own; what is sent by them is judged later.

A rule outlives the sign-in by which it was made, so it is made like a token: in a young session, never with a token. An admin sees and
removes the rules of others. URLs and keys are shown to no person again.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from fastapi import Query, Request, Response

from fairlead_bus.port import Bus, Unavailable
from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.guard import address_of_scope
from fairlead_gateway.errors import HttpError, bad_field, not_found
from fairlead_gateway.http_messages import JsonResponse, RequestHead, head_of, owned_head, read_head, read_request
from fairlead_gateway.notify.allowed_hosts import AllowedHosts, HostRefused
from fairlead_gateway.notify.rules import Rule
from fairlead_gateway.notify.settings import is_mail_address
from fairlead_gateway.notify.store import RULES_MAX, RULES_OF_OWNER_MAX, Delivery, RuleStore
from fairlead_gateway.notify.webhook import judged_url, new_secret
from fairlead_gateway.routes.account_bodies import require_text
from fairlead_gateway.routes.query import AnyLimit, Continue, page_by_name
from fairlead_gateway.routes.request_bodies import EmptyRequest
from fairlead_gateway.routes.router import SIGNED_IN, Router
from fairlead_gateway.routes.tokens import NO_STORE, require_fresh
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http import notifications as doc
from fairlead_schemas.http.api import Page
from fairlead_schemas.policies.notifications import MINE, NotificationKind
from fairlead_schemas.policies.rights import ScopeError, parse_scope
from fairlead_schemas.units.timestamps import HOUR_NS, rfc3339, rfc3339_or_none
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.access_records import AccessEntry, AccessKind

#: Scopes of one rule.
SCOPES_MAX = 20
#: Beginning of a scope that is one job.
JOB = "job:"
#: A rule about jobs alone is kept so long after they have ended: its mail may be late.
KEPT_AFTER_END_NS = HOUR_NS
#: A test is one attempt of the notifier, which has a bound of its own.
TEST_S = 20.0
_ID_CHARS = "0123456789abcdefghijklmnopqrstuvwxyz"


def is_about_jobs(scopes: Sequence[str]) -> bool:
    """Return True if all scopes are single jobs."""
    return bool(scopes) and all(scope.startswith(JOB) for scope in scopes)


class RuleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/notifications: `webhook` is a URL; `mail` is true for one's own address, or an address without sign-on.
    `after`: of a rule about jobs alone, the log sequence of their submit, so that an end before the rule was made is sent as well.
    """

    on: list[NotificationKind]
    webhook: str = ""
    mail: bool | str = False
    name: str = ""
    scopes: list[str] = msgspec.field(default_factory=lambda: [MINE])
    elements: bool = False
    after: int = 0


class NotificationRoutes:
    """Handlers over the bucket of rules. `clock`: Unix ns."""

    def __init__(
        self,
        views: Views,
        bus: Bus,
        accounts: Accounts,
        store: RuleStore,
        allowed: AllowedHosts,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.views = views
        self.accounts = accounts
        self.store = store
        self._bus = bus
        self._allowed = allowed
        self._clock = clock

    async def make(self, caller: Caller, owner: str, wanted: RuleRequest) -> doc.NewNotificationRule:
        """Store a new rule of the caller, whose name is `owner`. Raise HttpError."""
        if not caller.is_open:
            await require_fresh(self.views, self.accounts, caller, self._clock)
        channel, to = self._destination(caller, wanted)
        self._require_valid(wanted)
        await self.require_loaded()
        await self._drop_past(owner)
        self._require_room(owner)
        rule = Rule(
            id="n" + "".join(secrets.choice(_ID_CHARS) for _ in range(12)),
            owner=owner,
            name=wanted.name,
            channel=channel,
            to=to,
            kinds=tuple(dict.fromkeys(wanted.on)),
            scopes=tuple(dict.fromkeys(wanted.scopes)),
            elements=wanted.elements,
            secret=new_secret() if channel == "webhook" else "",
            made_ns=self._clock(),
            after=wanted.after or self.views.sequence,
        )
        await self.store.add(rule)
        shown = msgspec.structs.asdict(document_of(rule, None))
        return doc.NewNotificationRule(**shown, secret=rule.secret, sequence=self.views.sequence)

    def _destination(self, caller: Caller, wanted: RuleRequest) -> tuple[Literal["webhook", "mail"], str]:
        """Return the channel of a wanted rule, and its URL or address. Raise HttpError."""
        if bool(wanted.webhook) == bool(wanted.mail):
            raise bad_field("webhook", "expected either webhook, a URL, or mail")
        if wanted.webhook:
            try:
                judged_url(wanted.webhook, self._allowed)
            except HostRefused as error:
                raise bad_field("webhook", str(error)) from None
            return "webhook", wanted.webhook
        if wanted.mail is True and not caller.is_open:
            return "mail", ""
        if not caller.is_open:
            raise bad_field("mail", "expected true: mail goes to your own address, as this cluster knows it")
        if not isinstance(wanted.mail, str) or not is_mail_address(wanted.mail):
            raise bad_field("mail", 'expected an address such as "ada@example.org"')
        return "mail", wanted.mail

    def _require_valid(self, wanted: RuleRequest) -> None:
        require_text("name", wanted.name)
        if not wanted.on:
            raise bad_field("on", 'expected kinds such as ["end", "idle"], found none')
        if not 0 < len(wanted.scopes) <= SCOPES_MAX:
            raise bad_field("scopes", f"expected 1 to {SCOPES_MAX} scopes, found {len(wanted.scopes)}")
        if wanted.after and not is_about_jobs(wanted.scopes):
            raise bad_field("after", "expected it with scopes of jobs only, such as job:812")
        if not 0 <= wanted.after <= self.views.sequence:
            raise bad_field(
                "after", f"expected a sequence of the log, up to {self.views.sequence}, found {wanted.after}"
            )
        for at, text in enumerate(wanted.scopes):
            try:
                _ = text == MINE or parse_scope(text)
            except ScopeError as error:
                raise bad_field(f"scopes[{at}]", f'{error}; or "{MINE}"') from None

    async def _drop_past(self, owner: str) -> None:
        """Erase rules of the owner about jobs alone which have ended a while ago: `sbatch --mail-type` makes one for each job."""
        before_ns = self.views.at_ns - KEPT_AFTER_END_NS
        for rule in self.store.of(owner):
            if is_about_jobs(rule.scopes) and all(self._is_past(scope[len(JOB) :], before_ns) for scope in rule.scopes):
                await self.store.remove(rule.id)

    def _is_past(self, job: str, before_ns: int) -> bool:
        row = self.views.jobs.rows.get(job)
        return row is None or 0 < row.ended_ns < before_ns

    def _require_room(self, owner: str) -> None:
        if len(self.store.of(owner)) >= RULES_OF_OWNER_MAX:
            detail = f"you have {RULES_OF_OWNER_MAX} rules already, which is the most"
            raise HttpError(409, "too_many_rules", detail, hint="fairlead notify remove")
        if len(self.store.rules) >= RULES_MAX:
            raise HttpError(409, "too_many_rules", f"this cluster has {RULES_MAX} rules already, which is the most")

    async def require_loaded(self) -> None:
        """Read the rules, if this gateway has not done so. Raise HttpError (503) where the bus does not answer."""
        try:
            if not self.store.loaded:
                await self.store.load()
        except Unavailable:
            raise HttpError(503, "starting", "the rules cannot be read now", retry_after_s=2) from None

    async def find(self, head: RequestHead, rule_id: str) -> Rule:
        """Return a rule of the sender, or of anybody for an admin. Raise HttpError (404)."""
        await self.require_loaded()
        rule = self.store.rules.get(rule_id)
        if rule is None or (rule.owner != head.user and not head.caller.may("rights:grant", CLUSTER)):
            raise not_found("notification", rule_id[:80], hint="GET /v1/notifications lists them")
        return rule

    async def remove(self, head: RequestHead, rule_id: str) -> Rule:
        """Erase a rule, and return it. Raise HttpError."""
        rule, caller = await self.find(head, rule_id), head.caller
        if caller.is_token and not self.views.access.may_revoke(caller.credential, rule.id):
            raise HttpError(403, "token_is_limited", "a token with limits removes no rules", hint="fairlead login")
        await self.store.remove(rule.id)
        return rule

    def note(self, kind: AccessKind, request: Request, head: RequestHead, rule_id: str, owner: str) -> None:
        """Note in the record of access that a rule was made or removed: by it, events leave the cluster. Without sign-on there is none."""
        if head.caller.is_open:
            return
        self.accounts.note(
            AccessEntry(
                kind=kind,
                at_ns=0,
                principal=head.caller.principal,
                via=head.caller.via,
                target=f"notification:{rule_id}",
                owner=owner,
                address=address_of_scope(request.scope),
            )
        )

    async def test(self, rule: Rule) -> doc.DeliveryTest:
        """Have the notifier send one message to a rule's destination. Raise HttpError (503) without a notifier."""
        request = msgspec.json.encode({"id": rule.id})
        try:
            answer = await self._bus.request(subjects.rpc("notifier", "test"), request, timeout_s=TEST_S)
        except Unavailable:
            hint = "python -m fairlead_gateway.notify runs it"
            raise HttpError(503, "no_notifier", "the notifier does not answer", hint=hint, retry_after_s=2) from None
        return msgspec.json.decode(answer, type=doc.DeliveryTest)


def document_of(rule: Rule, delivery: Delivery | None) -> doc.NotificationRule:
    """Return a rule as it is shown."""
    delivery = delivery or Delivery(place=0)
    return doc.NotificationRule(
        id=rule.id,
        owner=rule.owner,
        name=rule.name,
        channel=rule.channel,
        to=_shown_url(rule.to) if rule.channel == "webhook" else rule.to,
        on=list(rule.kinds),
        scopes=list(rule.scopes),
        elements=rule.elements,
        made_at=rfc3339(rule.made_ns),
        state=delivery.state,
        error=delivery.error,
        failing_since=rfc3339_or_none(delivery.failing_since_ns),
        sent=delivery.sent,
        sent_at=rfc3339_or_none(delivery.sent_ns),
    )


def _shown_url(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"


def _reader(request: Request) -> RequestHead:
    """Return the head of a request that changes nothing, with its sender's name. Raise HttpError (422)."""
    return owned_head(read_head(request.scope["headers"]), caller_of(request)).require_valid()


def routes(handlers: NotificationRoutes) -> Router:
    """Return the routes."""
    router = Router()
    _add_reads(router, handlers)
    _add_changes(router, handlers)
    return router


def _add_reads(router: Router, handlers: NotificationRoutes) -> None:
    @router.read(
        "/v1/notifications",
        "List rules of notifications with the states of their destinations, one's own or those of another",
        Page[doc.NotificationRule],
        right=SIGNED_IN,
    )
    async def list_notifications(
        request: Request,
        of: Annotated[str, Query(description="Login name or id; needs rights:grant on the cluster.")] = "",
        limit: AnyLimit = None,
        next: Continue = "",
    ) -> Response:
        head = _reader(request)
        owner = await handlers.accounts.people.resolve(of) if of else head.user
        if owner != head.user:
            head.caller.require("rights:grant", CLUSTER)
        await handlers.require_loaded()
        rules = {rule.id: rule for rule in handlers.store.of(owner)}
        shown, following = page_by_name(rules, limit, next)
        items = [document_of(rule, await handlers.store.delivery(rule.id)) for rule in shown]
        return JsonResponse(Page(items=items, next=following, sequence=handlers.views.sequence))


def _add_changes(router: Router, handlers: NotificationRoutes) -> None:
    @router.command(
        "POST",
        "/v1/notifications",
        "Make a rule: events of these kinds are sent to a webhook or by mail. The key of its signatures is shown once",
        doc.NewNotificationRule,
        right=SIGNED_IN,
        keyed=False,
        body=RuleRequest,
        status=201,
    )
    async def create_notification(request: Request) -> Response:
        head, wanted = head_of(request), await read_request(request, RuleRequest)
        made = await handlers.make(head.caller, head.user, wanted)
        handlers.note("notification_made", request, head, made.id, made.owner)
        return JsonResponse(made, status_code=201, headers=NO_STORE)

    @router.command("DELETE", "/v1/notifications/{notification}", "Remove a rule", right=SIGNED_IN, keyed=False)
    async def remove_notification(notification: str, request: Request) -> Response:
        head = head_of(request)
        rule = await handlers.remove(head, notification)
        handlers.note("notification_removed", request, head, rule.id, rule.owner)
        return JsonResponse({"id": notification, "removed": True, "sequence": handlers.views.sequence})

    @router.command(
        "POST",
        "/v1/notifications/{notification}:test",
        "Send a test message to a rule's destination; one that is paused goes on if it arrives",
        doc.DeliveryTest,
        right=SIGNED_IN,
        keyed=False,
        body=EmptyRequest,
        required=False,
        operation_id="test_notification",
    )
    async def test_notification(notification: str, request: Request) -> Response:
        head, _ = head_of(request), await read_request(request, EmptyRequest)
        return JsonResponse(await handlers.test(await handlers.find(head, notification)))
