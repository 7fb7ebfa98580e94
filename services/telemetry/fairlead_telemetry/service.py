"""Service that opens the warehouse, follows the log, answers queries and detects idle runs. Wiring only. Start at
`Telemetry.run`.

Two parts run in one process. The lock on the DuckDB file keeps a second process out of the warehouse. The idle policies'
core runs on the shell that every writer of the log uses, with its lease and its fence. The parts share the samples that
are read, and nothing else.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import duckdb
import structlog

from fairlead_bus import bus_faults as log_damage
from fairlead_bus.environment_settings import number, seconds
from fairlead_bus.input_source import CommandSource
from fairlead_bus.log_time import skew_from
from fairlead_bus.main import instance
from fairlead_bus.port import Bus, LogDamaged
from fairlead_bus.service import Service
from fairlead_schemas.units.timestamps import DAY_NS
from fairlead_schemas.wire.conditions import EXIT_STEPPED_DOWN
from fairlead_schemas.wire.samples import SampleColumns
from fairlead_telemetry.activity import ActivitySource
from fairlead_telemetry.idle.core import IdleCore
from fairlead_telemetry.ingest import KEPT, READ_PAUSE_S, Ingest, StoringEnded
from fairlead_telemetry.queries.answers import TelemetryQueries
from fairlead_telemetry.queries.current_use import NewestBatches
from fairlead_telemetry.queries.usage import UsageQueries, price_file
from fairlead_telemetry.sql.query_pool import DEADLINE_S, QueryPool
from fairlead_telemetry.warehouse import database
from fairlead_telemetry.warehouse.warehouse import Retention, Warehouse, WarehouseBusy, WarehouseRefused

EXIT_REFUSED = 1
#: Longest time for which a stop waits for the last commits to be stored.
FLUSH_S = 5.0

log = structlog.get_logger("telemetry")


class Telemetry:
    """The running service; `run` until `stop`."""

    def __init__(
        self,
        bus: Bus,
        directory: Path,
        *,
        kept: Retention = KEPT,
        sql_deadline_s: float = DEADLINE_S,
        prices: Path | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._bus = bus
        self._directory = directory
        self._kept = kept
        self._clock = clock
        self._sql_deadline_s = sql_deadline_s
        self._prices = prices
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Store and answer until stopped; returns the exit code. One line says why it ends otherwise."""
        try:
            warehouse = Warehouse(self._directory)
        except WarehouseBusy as busy:
            log.critical("stepped_down", reason=str(busy))
            return EXIT_STEPPED_DOWN
        except WarehouseRefused as refused:
            log.critical("telemetry_refused", reason=str(refused))
            return EXIT_REFUSED
        if warehouse.damage:
            log.error("warehouse_made_anew", reason=warehouse.damage, files_missing=warehouse.files_missing)
        try:
            return await self._serve(warehouse)
        except duckdb.Error as error:  # in what is read before the log is followed; behind that `_follow` catches it
            if not database.is_damage(error):
                raise
            self._mark(error)
            log.critical("telemetry_refused", reason=f"{type(error).__name__}: {error}")
            return EXIT_REFUSED
        finally:
            warehouse.close()

    async def _serve(self, warehouse: Warehouse) -> int:
        """Store, answer and decide from an open warehouse until stopped. Raises duckdb.Error where it cannot be read at the start."""
        activity, newest = ActivitySource(self._clock), NewestBatches()

        def feed(batch: SampleColumns) -> None:
            activity.feed(batch)
            newest.feed(batch)

        ingest = Ingest(self._bus, warehouse, kept=self._kept, clock=self._clock, on_batch=feed)

        async def copy_to(target: Path) -> None:
            await ingest.ask(warehouse.copy_to, target)

        sql = QueryPool(
            self._directory, copy_to=copy_to, version=lambda: ingest.version, deadline_s=self._sql_deadline_s
        )
        usage = UsageQueries(warehouse, ingest, self._prices, self._clock)
        served = await TelemetryQueries(warehouse, ingest, sql, usage, newest).serve(self._bus)
        usage.start()
        log.info("telemetry_started", sequence=ingest.cursor.sequence, events=ingest.cursor.events)
        try:
            return await self._follow(ingest, activity)
        finally:
            for subscription in served:
                await subscription.close()
            await sql.close()
            await usage.close()
            await ingest.close()
            log.info("telemetry_stopped", sequence=ingest.cursor.sequence)

    async def stop(self) -> None:
        """Ask `run` to end."""
        self._stopping.set()

    async def _follow(self, ingest: Ingest, activity: ActivitySource) -> int:
        """Store and decide until stopped. Nothing is decided upon a log that the warehouse does not know."""
        try:
            if not await self._before_stop(ingest.same_log()):
                return 0
            return await self._until_stopped(ingest, idle_service(self._bus, activity))
        except* WarehouseRefused as errors:
            self._refused(errors, ingest)
            return_code = EXIT_REFUSED
        except* LogDamaged as errors:
            return_code = log_damage.end_service(IdleCore.writer, log_damage.first_error(errors))
        except* (duckdb.Error, OSError) as errors:
            self._refused(errors, ingest)
            return_code = EXIT_REFUSED
        return return_code

    def _refused(self, errors: BaseExceptionGroup[Exception], ingest: Ingest) -> None:
        for error in errors.exceptions:
            if isinstance(error, duckdb.Error) and database.is_damage(error):
                self._mark(error)
        reasons = "; ".join(f"{type(error).__name__}: {error}" for error in errors.exceptions)
        log.critical("telemetry_refused", reason=reasons, sequence=ingest.cursor.sequence)

    def _mark(self, error: duckdb.Error) -> None:
        """Have the next start set the database aside."""
        database.mark_damaged(self._directory, str(error).splitlines()[0])

    async def _before_stop(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do something unless the service is asked to end meanwhile. Raises what the work raises."""
        working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
            return working.done()
        finally:
            await _cancel(working, stopping)

    async def _until_stopped(self, ingest: Ingest, idle: Service[IdleCore]) -> int:
        """Raises what ingest raises; else the exit code of the part that ended first."""
        storing = asyncio.ensure_future(ingest.run())
        deciding = asyncio.ensure_future(idle.run())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((storing, deciding, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not deciding.done():
                await idle.stop()  # its lease is free for a standby while rows are stored
            if not storing.done():
                # The next start need not read again what is stored; without the bus, nothing is lost either.
                with contextlib.suppress(TimeoutError, StoringEnded):
                    async with asyncio.timeout(FLUSH_S):
                        await ingest.flush()
            if storing.done():
                await storing
            return await deciding
        finally:
            await _cancel(storing, deciding, stopping)


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def idle_service(bus: Bus, activity: ActivitySource) -> Service[IdleCore]:
    """The idle policies' core on the service shell. Raises BadSetting."""
    sources = [CommandSource(IdleCore.writer, waits=True), activity]
    service = Service(
        bus,
        IdleCore,
        writer=IdleCore.writer,
        sources=sources,
        skew_ns=skew_from(os.environ),
        instance=instance(),
        read_pause_s=READ_PAUSE_S,  # its policies count in seconds
    )
    activity.keep_time(service.clock.now)
    return service


async def build(bus: Bus) -> Telemetry:
    """The service with its settings from the environment (docs/reference/settings.md). Raises BadSetting."""
    return Telemetry(
        bus,
        Path(os.environ.get("FAIRLEAD_DATA", ".fairlead")) / "telemetry",
        kept=Retention(
            _days("FAIRLEAD_SAMPLES_DAYS", 7),
            _days("FAIRLEAD_SAMPLE_MINUTES_DAYS", 90),
            _days("FAIRLEAD_SAMPLE_HOURS_DAYS", 1095),
        ),
        sql_deadline_s=seconds(os.environ, "FAIRLEAD_SQL_DEADLINE_S", DEADLINE_S),
        prices=price_file(os.environ.get("FAIRLEAD_PRICES", "")),
    )


def _days(name: str, default: int) -> int:
    return int(number(os.environ, name, float(default), unit="days", below=36500) * DAY_NS)
