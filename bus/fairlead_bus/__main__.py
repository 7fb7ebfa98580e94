"""`python -m fairlead_bus`: make the streams, or check those that there are, and end.

With keys, nobody else may (permissions.py): FAIRLEAD_NATS_NKEY_FILE names the key of `streams`. Run it once for a new
server, and again after an upgrade or a changed FAIRLEAD_LOG_MAX_BYTES; what is as it should be is left as it is.
"""

import asyncio
import sys

import structlog

from fairlead_bus.main import bus_key, configure_logging, nats_url
from fairlead_bus.nats_bus import connect
from fairlead_bus.port import BusError
from fairlead_bus.settings import BadSetting


async def make() -> None:
    """Raises BusError, BadSetting."""
    bus = await connect(nats_url(), name="streams", key=bus_key())
    try:
        await bus.ensure()
    finally:
        await bus.close()


def main() -> int:
    """The exit code: 0 when all streams are as they must be."""
    configure_logging()
    try:
        asyncio.run(make())
    except (BusError, BadSetting) as error:
        structlog.get_logger().critical("the streams cannot be made", reason=str(error))
        return 1
    structlog.get_logger().info("the streams are as they must be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
