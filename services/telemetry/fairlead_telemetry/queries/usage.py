"""Verb `usage`: keeps the meter up to date in the background, and answers with statements. A shell.

    usage  {"month"?: "2026-11", "from_ns"?: …, "to_ns"?: …, "by"?: "user", "at"?: 4711}  -> fairlead_schemas.queries.telemetry.UsageStatement

Without a month and a begin it is the present month; a begin without an end is up to now. With `at` everything is as of that log
sequence: what was charged and set by then, with its time as now.

The bill of a time that is not over comes with an estimate up to now, by this service's clock and never before the log's.
The price table is read again for each answer, so that a new one needs no restart.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from fairlead_bus.environment_settings import BadSetting
from fairlead_schemas.queries.telemetry import BYS, By
from fairlead_schemas.units.timestamps import midnight, rfc3339_seconds
from fairlead_telemetry.ingest import Ingest
from fairlead_telemetry.usage.prices import NO_PRICES, Prices, PriceTableError, read_prices
from fairlead_telemetry.usage.statement import Span, month_at, month_named, span_between
from fairlead_telemetry.usage.usage_store import UsageStore
from fairlead_telemetry.warehouse.warehouse import Warehouse

#: The last moment that a statement may name: the end of the year 2200.
TIME_NS_MAX = midnight("2201-01-01")
_DATES = "fairlead usage --from 2026-11-02 --to 2026-11-09"
#: Interval at which the table follows the events without requests.
FOLLOW_S = 15.0
#: Who asks waits so long for it to catch up.
PATIENCE_S = 20.0
#: Under a bus message's 1 MiB.
ANSWER_BYTES_MAX = 1_000_000

log = structlog.get_logger("telemetry")


class UsageRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Request of rpc("telemetry", "usage")."""

    month: str = ""
    from_ns: int = 0
    to_ns: int = 0
    by: By = "user"
    #: The log sequence to answer for; 0: the newest.
    at: int = 0


class UsageRefused(ValueError):
    """A question about usage cannot be answered as it was put."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code, self.hint = code, hint


class UsageQueries:
    """Follows the warehouse and answers, from `start` until `close`."""

    def __init__(
        self, warehouse: Warehouse, ingest: Ingest, prices: Path | None, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._ingest, self._clock = ingest, clock
        self._usage = UsageStore(warehouse)
        self._prices = prices
        #: Fault of the price table that was last reported in the log; "": none.
        self._price_fault = ""
        self._turn = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow from now on."""
        self._following = asyncio.create_task(self._follow(), name="usage")

    async def close(self) -> None:
        """Stop following and write the memory down."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._ingest.on_thread(self._usage.save)

    async def ask(self, request: bytes) -> bytes:
        """Return one statement, or {"error": …}."""
        try:
            return await self._answer(request)
        except UsageRefused as refused:
            problem = {"code": refused.code, "message": str(refused), "hint": refused.hint}
            return msgspec.json.encode({"error": problem})

    async def _answer(self, request: bytes) -> bytes:
        try:
            query = msgspec.json.decode(request or b"{}", type=UsageRequest)
        except msgspec.MsgspecError as error:
            raise UsageRefused("bad_request", str(error), f"by is one of {', '.join(BYS)}") from None
        try:
            prices = await asyncio.to_thread(read_price_file, self._prices)
        except (OSError, ValueError) as error:
            raise UsageRefused(
                "bad_prices", f"price table {self._prices}: {error}", "an admin mends the file"
            ) from None
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._ingest.flush()
                await self._catch_up()
        except TimeoutError:
            message = f"usage has been read up to log sequence {self._usage.sequence} of {self._ingest.sequence}"
            raise UsageRefused("busy", message, "try again") from None
        await self._ingest.on_thread(self._usage.set_prices, prices)
        if query.at > self._usage.sequence:
            message = f"usage has been read up to log sequence {self._usage.sequence}, asked for {query.at}"
            raise UsageRefused("busy", message, "try again")
        if query.at:
            then = await self._ingest.on_thread(self._usage.moment, query.at)
        else:
            then = self._usage.newest(self._clock())
        span = _span(query, then.now_ns)
        statement = await self._ingest.on_thread(self._usage.statement, span, query.by, prices, then)
        answer = msgspec.json.encode(statement)
        if len(answer) > ANSWER_BYTES_MAX:
            message = f"{len(statement.lines)} lines are too many for one answer"
            raise UsageRefused("too_many", message, "ask by queue or user, or fairlead sql over the table gpu_usage")
        return answer

    async def _catch_up(self) -> None:
        """In steps, between which others use the warehouse."""
        async with self._turn:
            while await self._ingest.on_thread(self._usage.catch_up):
                pass

    async def _refresh_prices(self) -> None:
        """Make the file's prices those of SQL. A file with a mistake leaves the earlier ones, and each fault is logged once."""
        try:
            prices = await asyncio.to_thread(read_price_file, self._prices)
        except (OSError, ValueError) as error:
            if str(error) != self._price_fault:
                log.warning("prices_unreadable", file=str(self._prices), error=str(error))
            self._price_fault = str(error)
            return
        self._price_fault = ""
        await self._ingest.on_thread(self._usage.set_prices, prices)

    async def _follow(self) -> None:
        """Keep the meter up to date until it fails. Later requests then meet the same fault, and all other work continues."""
        try:
            while True:
                await self._catch_up()
                await self._refresh_prices()
                await asyncio.sleep(FOLLOW_S)
        except Exception:
            log.exception("usage_stopped", sequence=self._usage.sequence)


def _span(query: UsageRequest, now_ns: int) -> Span:
    """Return the time that is asked about. Raise UsageRefused."""
    if query.from_ns or query.to_ns:
        begin_ns, end_ns = query.from_ns, query.to_ns or now_ns
        if query.month or not query.from_ns:
            raise UsageRefused("bad_request", "from: expected a begin, and no month with it", _DATES)
        if not begin_ns < end_ns <= TIME_NS_MAX:
            found = f"{rfc3339_seconds(max(0, begin_ns))} to {rfc3339_seconds(min(max(0, end_ns), TIME_NS_MAX))}"
            raise UsageRefused("bad_request", f"to: expected an end after the begin, found {found}", _DATES)
        return span_between(begin_ns, end_ns)
    month = month_named(query.month) if query.month else month_at(now_ns)
    if month is None:
        message = f"month: expected a month such as 2026-11, found {query.month[:40]!r}"
        raise UsageRefused("bad_request", message, "fairlead usage --statement 2026-11")
    return month


def read_price_file(path: Path | None) -> Prices:
    """The price table; none where there is no file named. Raises OSError, PriceTableError, UnicodeDecodeError."""
    return read_prices(path.read_text(encoding="utf-8")) if path is not None else NO_PRICES


def price_file(setting: str) -> Path | None:
    """FAIRLEAD_PRICES as a path that holds a price table. Raises BadSetting."""
    if not setting:
        return None
    try:
        read_price_file(Path(setting))
    except (OSError, PriceTableError, UnicodeDecodeError) as error:
        raise BadSetting(f"FAIRLEAD_PRICES: {setting}: {error}") from error
    return Path(setting)
