"""Look-up of credentials in the bucket CREDENTIAL, which is outside the log and erasable."""

import msgspec
import structlog

from fairlead_bus.port import Bus
from fairlead_gateway.access.callers import CredentialRow
from fairlead_schemas.wire import subjects

log = structlog.get_logger()

_decode = msgspec.json.Decoder(CredentialRow).decode


class BucketLookup:
    """The `CredentialLookup` of a gateway on a bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def find(self, digest: str) -> CredentialRow | None:
        """Return the credential with a digest (hex); None for none. Raises Unavailable."""
        entry = await self._bus.get(subjects.CREDENTIAL, f"digest.{digest}")
        if entry is None:
            return None
        try:
            return _decode(entry.value)
        except msgspec.MsgspecError as error:
            log.warning("credential not understood", reason=str(error))
            return None
