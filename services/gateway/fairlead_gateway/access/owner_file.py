"""File with the token of the cluster's owner, which the gateway makes at its first start where FAIRLEAD_OWNER_FILE names one.

The owner is an admin, so that the first person can be let in without a provider, and without commands on the bus. The file has mode
0600 and the only copy of the token. It is made again if its token is not in force, for instance after the file was deleted.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from fairlead_bus.port import BusError
from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.errors import HttpError
from fairlead_gateway.views.fold import Views
from fairlead_schemas.units.token_text import check, digest

log = structlog.get_logger()

#: Login name of the owner.
OWNER = "owner"
AGAIN_S = 1.0
#: Modes by which others read a file.
OTHERS = 0o077


class OwnerFile:
    """Keeps the file true. `is_ready`: returns True while the views are at the log's end."""

    def __init__(self, path: Path, views: Views, accounts: Accounts, is_ready: Callable[[], bool]) -> None:
        self.path = path
        self._views = views
        self._accounts = accounts
        self._is_ready = is_ready

    async def run(self) -> None:
        """Make the file once the access service answers, then return. A bus that is away is tried again."""
        while True:
            if self._is_ready():
                try:
                    await self.ensure()
                    return
                except HttpError as refused:
                    if refused.code == "has_owner":
                        log.info("no file of the owner is made", reason=str(refused))
                        return
                    log.warning("file of the owner not made yet", reason=str(refused))
                except BusError as error:
                    log.warning("file of the owner not made yet", reason=str(error))
                except OSError as error:
                    log.error("file of the owner cannot be written", path=str(self.path), reason=str(error))
                    return
            await asyncio.sleep(AGAIN_S)

    async def ensure(self) -> None:
        """Write a new token of the owner, unless the file's is in force. Raises BusError, HttpError, OSError."""
        if await self._is_in_force():
            return
        text = await self._accounts.make_owner(OWNER)
        await asyncio.to_thread(self._write, text)
        log.info("file of the owner written", path=str(self.path))

    async def _is_in_force(self) -> bool:
        try:
            text = (await asyncio.to_thread(self.path.read_text, "ascii")).strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return False
        row = await self._accounts.credentials.find(digest(text)) if check(text) else None
        if row is None or row.id not in self._views.access.tokens:
            return False
        if (await asyncio.to_thread(self.path.stat)).st_mode & OTHERS:
            log.warning("file of the owner could be read by others; its token is replaced", path=str(self.path))
            await self._accounts.revoke_token(row.id)
            return False
        return True

    def _write(self, text: str) -> None:
        """Replace the file at once, so that a reader finds a whole token or none."""
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
