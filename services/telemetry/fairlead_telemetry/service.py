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
from fairlead_telemetry.ingest import DAY_NS, Ingest
from fairlead_telemetry.sql import DEADLINE_S, Sql
from fairlead_telemetry.warehouse import Warehouse, WarehouseBusy, WarehouseRefused

EXIT_STEPPED_DOWN = 75

log = structlog.get_logger("telemetry")


class Telemetry:
    """The running service; `run` until `stop`."""

    def __init__(
        self, bus: Bus, directory: Path, *, samples_kept_ns: int = 7 * DAY_NS, sql_deadline_s: float = DEADLINE_S
    ) -> None:
        self._bus = bus
        self._directory = directory
        self._samples_kept_ns = samples_kept_ns
        self._sql_deadline_s = sql_deadline_s
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
        ingest = Ingest(self._bus, warehouse, samples_kept_ns=self._samples_kept_ns)

        async def copy_to(target: Path) -> None:
            await ingest.on_thread(warehouse.copy_to, target)

        sql = Sql(self._directory, copy_to=copy_to, version=lambda: warehouse.version, deadline_s=self._sql_deadline_s)
        served = await Answers(warehouse, ingest, sql).serve(self._bus)
        log.info("telemetry_started", sequence=ingest.cursor.sequence, events=ingest.cursor.events)
        try:
            return await self._until_stopped(ingest)
        finally:
            for subscription in served:
                await subscription.close()
            await sql.close()
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
        samples_kept_ns=int(number(os.environ, "FAIRLEAD_SAMPLES_DAYS", 7.0, unit="days", below=36500) * DAY_NS),
        sql_deadline_s=seconds(os.environ, "FAIRLEAD_SQL_DEADLINE_S", DEADLINE_S),
    )
