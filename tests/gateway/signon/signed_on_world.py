"""The gateway with a sign-on file, on a real socket, with the real access core, and a real provider that it knows as "corp"."""

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any, Self

import httpx

from fairlead_gateway.server.http_server import HttpSettings, listen, make_server
from tests.gateway.access.accounts_world import AccountsWorld
from tests.kit.identity_provider import OIDC_PROVIDER, SECRET, IdentityProvider


def free_port() -> int:
    """Return a port of loopback that was free just now."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]


class SignedOnWorld(AccountsWorld):
    """Use `async with SignedOnWorld(tmp_path) as world`. `world.url` is the gateway's address, `world.issuer` the provider's."""

    def __init__(self, folder: Path, at: IdentityProvider = OIDC_PROVIDER, *, more: str = "", **provider: str) -> None:
        self.at = at
        port, self.provider_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.issuer = f"http://localhost:{self.provider_port}"
        lines = {
            "name": '"corp"',
            "issuer": f'"{self.issuer}"',
            "client_id": '"fairlead"',
            "client_secret": f'"{SECRET}"',
            "admit": '"everyone"',
            "groups_claim": '"groups"',
            **at.settings,
            **provider,
        }
        path = folder / "sign-on.toml"
        head = f'public_url = "{self.url}"\nkey_file = "sign-on.key"\n{more}\n[[provider]]\n'
        path.write_text(head + "\n".join(f"{name} = {value}" for name, value in lines.items()))
        path.chmod(0o600)
        super().__init__(http=HttpSettings(host="127.0.0.1", port=port), sign_on=str(path))
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.at.running(self.provider_port, self.url))
        await super().__aenter__()
        server = make_server(self.gateway.app, self.settings.http, lambda *_: None)
        self._server = server
        self._serving = asyncio.create_task(server.serve(sockets=[listen(self.settings.http)]))
        return self

    async def __aexit__(self, *args: object) -> None:
        self._server.stop()
        await self._serving
        await super().__aexit__(*args)
        await self._stack.aclose()

    def browser(self) -> httpx.AsyncClient:
        """Return a browser without cookies."""
        return httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=30)

    async def sign_in(self, browser: httpx.AsyncClient, account: str = "ann", to: str = "/v1/whoami") -> httpx.Response:
        """Sign in at the provider; the page that it ends at."""
        return await self.at.sign_in(browser, f"{self.url}/sign-in/corp?to={to}", account)

    async def who(self, browser: httpx.AsyncClient) -> dict[str, Any] | None:
        """Return the document about the browser's session; None without one."""
        answer = await browser.get("/v1/whoami")
        return answer.json() if answer.status_code == 200 else None
