"""The telemetry service: opens the warehouse, follows the log, answers. Wiring only. Start at `Telemetry.run`.

It writes no event, so it needs no lease; the lock on the DuckDB file keeps a second one out.
"""

import asyncio
import os
from pathlib import Path

import duckdb
import structlog

from fairlead_bus.port import Bus, LogDamaged
from fairlead_bus.settings import number, seconds
from fairlead_telemetry.answers import Answers
from fairlead_telemetry.ingest import DAY_NS, KEPT, Ingest
from fairlead_telemetry.sql.desk import DEADLINE_S, Desk
from fairlead_telemetry.usage.asked import UsageDesk, price_file
from fairlead_telemetry.warehouse import Kept, Warehouse, WarehouseBusy, WarehouseRefused

EXIT_STEPPED_DOWN = 75

log = structlog.get_logger("telemetry")


class Telemetry:
    """The running service; `run` until `stop`."""

    def __init__(
        self, bus: Bus, directory: Path, *, kept: Kept = KEPT, sql_deadline_s: float = DEADLINE_S,
        prices: Path | None = None,
    ) -> None:  # fmt: skip
        self._bus = bus
        self._directory = directory
        self._kept = kept
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
            return 1
        ingest = Ingest(self._bus, warehouse, kept=self._kept)

        async def copy_to(target: Path) -> None:
            await ingest.on_thread(warehouse.copy_to, target)

        sql = Desk(self._directory, copy_to=copy_to, version=lambda: warehouse.version, deadline_s=self._sql_deadline_s)
        usage = UsageDesk(warehouse, ingest, self._prices)
        served = await Answers(warehouse, ingest, sql, usage).serve(self._bus)
        usage.start()
        log.info("telemetry_started", sequence=ingest.cursor.sequence, events=ingest.cursor.events)
        try:
            return await self._until_stopped(ingest)
        finally:
            for subscription in served:
                await subscription.close()
            await sql.close()
            await usage.close()
            await ingest.close()
            warehouse.close()
            log.info("telemetry_stopped", sequence=ingest.cursor.sequence)

    async def stop(self) -> None:
        """Ask `run` to end."""
        self._stopping.set()

    async def _until_stopped(self, ingest: Ingest) -> int:
        working = asyncio.ensure_future(ingest.run())
        asked = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((working, asked), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                return 0
            await working
        except* (WarehouseRefused, LogDamaged, duckdb.Error, OSError) as errors:
            reasons = "; ".join(f"{type(error).__name__}: {error}" for error in errors.exceptions)
            log.critical("telemetry_refused", reason=reasons, sequence=ingest.cursor.sequence)
        finally:
            for task in (working, asked):
                task.cancel()
            await asyncio.gather(working, asked, return_exceptions=True)
        return 1


async def build(bus: Bus) -> Telemetry:
    """The service with its settings from the environment (docs/settings.md). Raises BadSetting."""
    return Telemetry(
        bus,
        Path(os.environ.get("FAIRLEAD_DATA", ".fairlead")) / "telemetry",
        kept=Kept(
            _days("FAIRLEAD_SAMPLES_DAYS", 7),
            _days("FAIRLEAD_SAMPLE_MINUTES_DAYS", 90),
            _days("FAIRLEAD_SAMPLE_HOURS_DAYS", 1095),
        ),
        sql_deadline_s=seconds(os.environ, "FAIRLEAD_SQL_DEADLINE_S", DEADLINE_S),
        prices=price_file(os.environ.get("FAIRLEAD_PRICES", "")),
    )


def _days(name: str, default: int) -> int:
    return int(number(os.environ, name, float(default), unit="days", below=36500) * DAY_NS)
