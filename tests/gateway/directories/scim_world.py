"""The gateway with sign-on behind its real web server, and clients of SCIM for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
from scim2_client import BaseSyncSCIMClient

from fairlead_gateway.server.http_server import HttpSettings, listen, make_server
from tests.gateway.access.accounts_world import AccountsWorld

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


class ScimWorld(AccountsWorld):
    """Use `async with ScimWorld() as world`. `world.scim` sends by the owner's token unless another one is given."""

    async def scim(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, status: int = 200
    ) -> Any:
        """Send a request below /scim/v2, and return the document of the answer; None for an empty one."""
        answer = await self.send(method, f"/scim/v2{path}", body, token=token)
        assert answer.status_code == status, (answer.status_code, answer.text)
        if not answer.content:
            return None
        assert answer.headers["content-type"] == "application/scim+json"
        return answer.json()

    async def user(self, name: str, **fields: Any) -> str:
        """Make a person; its id."""
        return (await self.scim("POST", "/Users", {"schemas": [USER], "userName": name, **fields}, status=201))["id"]

    async def group(self, name: str, *members: str) -> str:
        """Make a group; its id."""
        body = {"schemas": [GROUP], "displayName": name, "members": [{"value": each} for each in members]}
        return (await self.scim("POST", "/Groups", body, status=201))["id"]

    async def patch(self, path: str, *operations: dict[str, Any], status: int = 200) -> Any:
        """Send a PATCH."""
        return await self.scim("PATCH", path, {"schemas": [PATCH], "Operations": operations}, status=status)

    def members(self, group: str, source: str = "scim") -> set[str]:
        """Members of a group by a source, in the folded log."""
        return set(self.gateway.views.access.access.groups.get(f"group:{group}", {}).get(source, ()))

    def is_active(self, principal: str) -> bool:
        """True while a principal is not suspended."""
        return self.gateway.views.access.access.principals[principal]


class ScimClient(BaseSyncSCIMClient):
    """The client of `scim2-client` over httpx, whose answers are compared with the RFCs."""

    def __init__(self, base: str, token: str) -> None:
        super().__init__()
        headers = {"authorization": f"Bearer {token}", "accept": "application/scim+json"}
        self.http = httpx.Client(base_url=base, headers=headers, timeout=30)

    def request(self, method: str, url: str, **more: Any) -> httpx.Response:
        return self.http.request(method, url, **more)

    def _parse_json(self, response: Any) -> Any:
        return response.json()

    def _stays_under_base_url(self, endpoint: str) -> bool:
        return str(self.http.build_request("GET", endpoint).url).startswith(str(self.http.base_url))


@contextlib.asynccontextmanager
async def served(world: AccountsWorld) -> AsyncIterator[str]:
    """Serve a world's gateway over HTTP until the block ends; yields the address of SCIM."""
    settings = HttpSettings(port=0)
    server = make_server(world.gateway.app, settings, world.gateway.metrics.count_refusal)
    door = listen(settings)
    task = asyncio.create_task(server.serve(sockets=[door]))
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}/scim/v2/"
    finally:
        server.stop()
        await task
