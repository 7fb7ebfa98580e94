"""The gateway with local users behind a real listening socket, for the command and the client."""

import asyncio
from typing import Any, Self

from fairlead.stack.nats_server import free_port
from fairlead_gateway.server.http_server import HttpSettings, listen, make_server
from tests.gateway.access.accounts_world import AccountsWorld


class ServedWorld(AccountsWorld):
    """Use `async with ServedWorld() as world`. `world.url` is the gateway's address."""

    def __init__(self, **more: Any) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        super().__init__(http=HttpSettings(host="127.0.0.1", port=port), **more)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._server = make_server(self.gateway.app, self.settings.http, lambda *_: None)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listen(self.settings.http)]))
        return self

    async def __aexit__(self, *args: object) -> None:
        self._server.stop()
        await self._serving
        await super().__aexit__(*args)
