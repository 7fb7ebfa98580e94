"""Prices of GPUs: GET /v1/prices lists those that were set, POST sets one from a moment on.

A price changes no decision: statements and SQL count by it, and the log keeps who set it.
"""

from fastapi import Request, Response

from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.errors import bad_field
from fairlead_gateway.http_messages import JsonResponse, head_of, read_request
from fairlead_gateway.routes.query import AnyLimit, At, Continue, page_at, page_by_name
from fairlead_gateway.routes.request_bodies import PriceRequest
from fairlead_gateway.routes.router import Router, listed, on_cluster
from fairlead_gateway.sources.historical_views import HistoricalViews
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queues import SetPriceRow
from fairlead_schemas.http import api
from fairlead_schemas.units.money import parse_currency, parse_price, price_text
from fairlead_schemas.units.timestamps import midnight, parse_rfc3339, rfc3339
from fairlead_schemas.wire import commands as cmd

MODEL_CHARS_MAX = 100


def routes(views: Views, past: HistoricalViews, queue: CommandPublisher, waiter: ResultWaiter) -> Router:
    """Return both."""
    router = Router()

    @router.read(
        "/v1/prices",
        "Prices of GPUs that were set, and from when on; now or at a past moment",
        api.Page[api.Price],
        right=listed("queue:read"),
    )
    async def list_prices(request: Request, limit: AnyLimit = None, next: Continue = "", at: At = "") -> Response:
        then = await page_at(past, at, next)
        shown = Sight(views, caller_of(request)).is_whole
        seen = {f"{row.model} {row.from_ns:020}": row for row in then.views.prices.rows.values()}
        rows, token = page_by_name(seen, limit, next, then)
        items = [_document(then.views, row, shown=shown) for row in rows]
        return JsonResponse(api.Page(items=items, next=token, sequence=then.views.sequence), headers=then.headers)

    @router.command(
        "POST", "/v1/prices", "Set the price of a GPU", api.Price, right=on_cluster("queue:set"), body=PriceRequest
    )
    async def set_price(request: Request) -> Response:
        head, wanted = head_of(request), await read_request(request, PriceRequest)
        model, micro, currency, from_ns = _checked(wanted)
        parts = (model, str(micro), currency, str(from_ns))
        command_id = waiter.command_id(queue, head, "price", *parts)
        command = cmd.SetPrice(
            id=command_id,
            user=head.user,
            authority=head.authority,
            model=model,
            micro=micro,
            currency=currency,
            from_ns=from_ns,
        )
        await waiter.carry_out(queue, command)
        set_ = [row for row in views.prices.rows.values() if row.model == model and from_ns in (0, row.from_ns)]
        return JsonResponse(_document(views, max(set_, key=lambda row: row.from_ns), shown=True))

    return router


def _checked(wanted: PriceRequest) -> tuple[str, int, str, int]:
    """Return model, millionths, currency and Unix ns (0: now). Raise HttpError."""
    if not 0 < len(wanted.model) <= MODEL_CHARS_MAX or not wanted.model.isprintable():
        raise bad_field("model", f"expected a GPU model of at most {MODEL_CHARS_MAX} characters, or *")
    try:
        micro = parse_price(str(wanted.per_gpu_hour))
    except ValueError as error:
        raise bad_field("per_gpu_hour", str(error)) from None
    try:
        currency = parse_currency(wanted.currency)
    except ValueError as error:
        raise bad_field("currency", str(error)) from None
    try:
        from_ns = 0 if not wanted.from_ else _moment(wanted.from_)
    except (ValueError, OverflowError):
        raise bad_field(
            "from", f'expected a day such as "2026-11-02" or an RFC 3339 time with zone, found "{wanted.from_[:40]}"'
        ) from None
    return wanted.model, micro, currency, from_ns


def _moment(text: str) -> int:
    """Unix ns, whole microseconds, of a day's begin in UTC or of a time. Raises ValueError."""
    at_ns = midnight(text) if len(text) == len("2026-11-02") else parse_rfc3339(text)
    if not 0 < at_ns < 2**62:
        raise ValueError(text)
    return at_ns // 1000 * 1000


def _document(views: Views, row: SetPriceRow, *, shown: bool) -> api.Price:
    return api.Price(
        model=row.model,
        per_gpu_hour=price_text(row.micro),
        currency=row.currency,
        valid_from=rfc3339(row.from_ns),
        by=views.name_of(row.by) if shown else "",
        sequence=views.sequence,
    )
