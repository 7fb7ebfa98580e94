"""The gateway with sign-on for tokens and local users, and the real access core, on the in-memory bus."""

from typing import Any, Self

import httpx

from fairlead_access.core import AccessCore
from fairlead_bus.input_source import CommandSource
from fairlead_bus.service import Service
from fairlead_gateway.access.accounts import SignInAt
from fairlead_queue.core import QueueCore
from tests.gateway.gatehouse import Gatehouse
from tests.kit.eventually import eventually_async

#: Of the local users that tests make.
PASSWORD = "correct horse battery"


class AccountsWorld(Gatehouse):
    """Use `async with AccountsWorld() as world`. `world.owner` is the owner's token."""

    def __init__(self, *, queue: bool = False, **more: Any) -> None:
        """`queue`: with the real queue service."""
        super().__init__(**{"sign_on": "local", **more})
        self._with_queue = queue
        self.owner = ""

    async def __aenter__(self) -> Self:
        self.spawn(Service(self.hub.connect(), AccessCore, writer="access", sources=[CommandSource("access")]))
        if self._with_queue:
            self.spawn(Service(self.hub.connect(), QueueCore, writer="queue", sources=[CommandSource("queue")]))
        await super().__aenter__()
        if self._with_queue:
            await eventually_async(lambda: "default" in self.gateway.views.queues.rows)
        self.owner = await self.gateway.accounts.make_owner("owner")
        return self

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, status: int = 200, **headers: str
    ) -> Any:
        """Send a request by a token (None: the owner's; "": without one), and return the document of the answer."""
        answer = await self.send(method, path, body, token=token, **headers)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json()

    async def send(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> httpx.Response:
        """As `ask`; the answer."""
        token = self.owner if token is None else token
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            named["authorization"] = f"Bearer {token}"
        return await self.http.request(method, path, json=body, headers=named)

    async def person(self, login: str, password: str = PASSWORD, **roles: str) -> str:
        """Make a local user with roles {role: scope}; its id."""
        made = await self.ask("POST", "/v1/people", {"login": login, "password": password}, status=201)
        for role, scope in roles.items():
            grant = {"subject": login, "role": role.replace("_", "-"), "scope": scope}
            await self.ask("POST", "/v1/access:grant", grant)
        return made["id"]

    async def session(self, principal: str) -> tuple[str, str]:
        """Open a session of a principal: its id, and its text, which serves as a bearer's token, too."""
        return await self.gateway.accounts.open_session(principal, SignInAt("local"))

    async def token(self, session: str, **fields: Any) -> dict[str, Any]:
        """Make a token in a session; the answer."""
        return await self.ask("POST", "/v1/tokens", {"name": "ci", **fields}, token=session, status=201)
