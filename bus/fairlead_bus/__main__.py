"""`python -m fairlead_bus [make | remake | check-store DIR --config FILE]`: make the streams, or check the existing ones,
and end.

With keys, only the holder of the `streams` key may do this (permissions.py); FAIRLEAD_NATS_NKEY_FILE names that key.
Run it once for new servers, and again after an upgrade or a changed FAIRLEAD_LOG_MAX_BYTES or FAIRLEAD_NATS_REPLICAS.
Streams that are already correct are left unchanged. The command waits for copies that are still being made, and reports
copies that are not current in time.

`remake` first deletes streams of derived or short-lived contents with wrong storage settings that no update can change
(one server's streams without fsync on three servers). End the services before.

`check-store` is for the moment before a nats-server starts: it ends with 1 where that server would delete or replace
the streams in its store (nats/store_check.py).
"""

import argparse
import asyncio
import sys
from pathlib import Path

import structlog

from fairlead_bus.bus_faults import retry_until_available
from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.main import START_S, bus_key, configure_logging, nats_url
from fairlead_bus.nats import stream_setup
from fairlead_bus.nats.adapter import NatsBus, connect
from fairlead_bus.nats.store_check import check_store
from fairlead_bus.port import BusError

COPIES_S = 30.0
COPIES_POLL_S = 0.5

log = structlog.get_logger()


async def make(*, remake: bool = False) -> None:
    """Raises BusError, BadSetting."""
    bus = await connect(nats_url(), name="streams", key=bus_key())
    try:
        if remake:
            await retry_until_available(lambda: stream_setup.remake_streams(bus.link), limit_s=START_S)
        await retry_until_available(bus.ensure, limit_s=START_S)
        await _wait_for_copies(bus)
    finally:
        await bus.close()


async def _wait_for_copies(bus: NatsBus) -> None:
    """Until all copies are current; those that are not within COPIES_S (a server is down) are logged."""
    deadline = asyncio.get_running_loop().time() + COPIES_S
    while behind := await retry_until_available(lambda: stream_setup.copies_behind(bus.link), limit_s=COPIES_S):
        if asyncio.get_running_loop().time() > deadline:
            log.warning("copies are not current: is a server down?", **behind)
            return
        await asyncio.sleep(COPIES_POLL_S)


def main() -> int:
    """The exit code: 0 when all streams, or the store, are as they must be."""
    arguments = _parser().parse_args()
    configure_logging()
    try:
        if arguments.command == "check-store":
            check_store(arguments.directory, arguments.config)
            log.info("the store suits the configuration")
        else:
            asyncio.run(make(remake=arguments.command == "remake"))
            log.info("the streams are as they must be")
    except (BusError, BadSetting) as error:
        log.critical("not as it must be", reason=str(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fairlead_bus", description="Make or check the streams of the bus.")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("make", help="make or check the streams (the default)")
    commands.add_parser("remake", help="delete and make again derived streams that are stored in another way")
    check = commands.add_parser("check-store", help="before a nats-server starts: would it lose what its store holds?")
    check.add_argument("directory", type=Path, metavar="DIR", help="the server's store_dir")
    check.add_argument("--config", type=Path, required=True, metavar="FILE", help="the server's configuration")
    return parser


if __name__ == "__main__":
    sys.exit(main())
