"""The gateway with sign-on, the real queue, placer and access service, and people with tokens."""

import hashlib
import itertools
import time
from typing import Any, Self

import httpx
import msgspec

from fairlead_access.core import AccessCore
from fairlead_bus.input_source import CommandSource
from fairlead_bus.service import Service
from fairlead_gateway.server.http_server import HttpSettings
from fairlead_schemas.policies.rights import Role, Verb
from fairlead_schemas.units.timestamps import HOUR_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import subjects
from fairlead_storage.core import StorageCore
from tests.gateway.world import GatewayWorld
from tests.kit.eventually import eventually_async


class SignedWorld(GatewayWorld):
    """`owner` is an admin of the cluster, and sends what the base class sends. Use `async with SignedWorld() as world`."""

    def __init__(self, *, http: HttpSettings | None = None) -> None:
        super().__init__(sign_on="local", http=http)
        self._ids = itertools.count(1)

    async def __aenter__(self) -> Self:
        sources = [CommandSource("access")]
        self.spawn(Service(self.hub.connect(), AccessCore, writer="access", sources=sources))
        self.spawn(Service(self.hub.connect(), StorageCore, writer="storage", sources=[CommandSource("storage")]))
        await super().__aenter__()
        await self.person("owner", admin="cluster")
        self.http.headers.update(self.bearer("owner"))
        return self

    async def command(self, what: type[cmd.CommandBase], *, service: str = "access", **fields: Any) -> None:
        """Send a command to the access service, or another one, and wait for its outcome in the gateway's views."""
        one = what(id=f"test-{next(self._ids)}", **fields)
        await self.bus.append(subjects.CMD, subjects.cmd(service), msgspec.json.encode([one]), msg_id=one.id)
        outcomes = self.gateway.views.outcomes
        await eventually_async(lambda: outcomes.get(one.id) is not None)
        outcome = outcomes.get(one.id)
        assert outcome is not None and not outcome.code, outcome

    async def person(self, name: str, **roles: str) -> None:
        """Admit a principal with a token of its name, and roles by their scopes: `viewer="queue:research"`."""
        await self.command(cmd.AdmitPrincipal, principal=name, kind="person")
        await self.token(name, name)
        for role, scope in roles.items():
            await self.grant(name, role.replace("_", "-"), scope)  # type: ignore[arg-type]

    async def storage(self, what: type[cmd.CommandBase], **fields: Any) -> None:
        """Send a command to the storage service, and wait for its outcome."""
        await self.command(what, service="storage", **fields)

    async def volume(self, name: str, owner: str) -> None:
        """Make a volume of 1 GiB, in a class of 8 GiB for each user."""
        await self.storage(cmd.SetStorageClass, name="shared", backend="directory", user_bytes_max=8 << 30)
        await self.storage(cmd.CreateVolume, volume=name, owner=owner, storage_class="shared", quota_bytes=1 << 30)

    async def service(self, name: str, **words: Any) -> Any:
        """Make a service without replicas; its document."""
        job = {"kind": "service", "name": name, "command": ["true"], "app": "http", "service": {"replicas": 0}, **words}
        answer = await self.http.post("/v1/services", json=job)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def token(
        self,
        token: str,
        principal: str,
        *,
        expires_ns: int = 0,
        verbs: tuple[Verb, ...] = (),
        scopes: tuple[str, ...] = (),
    ) -> None:
        """Issue a token whose text is its id with "-token"."""
        await self.credential(f"{token}-token", "token", token, principal)
        await self.command(
            cmd.IssueToken,
            token=token,
            principal=principal,
            expires_ns=expires_ns or time.time_ns() + HOUR_NS,
            verbs=verbs,
            scopes=scopes,
        )

    async def session(self, session: str, principal: str) -> None:
        """Open a session whose cookie is its id with "-cookie"."""
        await self.credential(f"{session}-cookie", "session", session, principal)
        await self.gateway.accounts.credentials.used(session, time.time_ns())
        await self.command(
            cmd.OpenSession,
            session=session,
            principal=principal,
            provider="local",
            expires_ns=time.time_ns() + HOUR_NS,
        )

    async def credential(self, secret: str, kind: str, name: str, principal: str) -> None:
        """Store the row of a credential."""
        row = {"kind": kind, "id": name, "principal": principal}
        digest = hashlib.sha256(secret.encode()).hexdigest()
        await self.bus.put(subjects.CREDENTIAL, f"digest.{digest}", msgspec.json.encode(row))

    async def grant(self, subject: str, role: Role, scope: str, **known: str) -> None:
        """Grant a role."""
        entry = cmd.RoleEntry(subject=subject, role=role, scope=scope, **known)
        await self.command(cmd.GrantRole, grant=entry)

    async def revoke(self, subject: str, role: Role, scope: str) -> None:
        """Take a role back."""
        await self.command(cmd.RevokeRole, grant=cmd.RoleEntry(subject=subject, role=role, scope=scope))

    @staticmethod
    def bearer(token: str) -> dict[str, str]:
        """Headers of a request with a token."""
        return {"authorization": f"Bearer {token}-token"}

    async def ask(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request as a person; "": without a credential."""
        headers = {**more.pop("headers", {}), **({"authorization": ""} if not who else self.bearer(who))}
        request = self.http.build_request(method, path, headers=headers, **more)
        if not who:
            del request.headers["authorization"]
        return await self.http.send(request)

    async def get(self, who: str, path: str, **more: Any) -> Any:
        """GET a document as a person."""
        answer = await self.ask(who, "GET", path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()


def body_of(answer: httpx.Response) -> tuple[int, dict[str, Any]]:
    """Return status and problem of an answer without its request id and the sequence."""
    found = answer.json()
    found.pop("request_id", None)
    found.pop("sequence", None)
    return answer.status_code, found
