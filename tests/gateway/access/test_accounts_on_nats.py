"""Accounts on a real server: nothing of a forgotten person is left in the stored bytes, and many tokens take little memory."""

import asyncio
import contextlib
import time
import tracemalloc

import pytest

from fairlead_access.core import AccessCore
from fairlead_bus.input_source import CommandSource
from fairlead_bus.nats.adapter import connect
from fairlead_bus.service import Service
from fairlead_gateway.access.accounts import NewPerson, SignInAt
from fairlead_gateway.access.callers import Callers, CredentialRow
from fairlead_gateway.http_messages import RequestHead
from fairlead_gateway.notify.rules import Rule
from fairlead_gateway.service import GatewaySettings, build
from fairlead_gateway.views.fold import Views
from fairlead_rights.state import Token
from fairlead_schemas.units.timestamps import DAY_NS
from fairlead_schemas.units.token_text import digest
from tests.kit.eventually import eventually_async
from tests.kit.nats_server import NatsServer

CANARY = "canary.person@corp.example"


@pytest.mark.nats
async def test_no_stored_byte_has_the_address_of_a_forgotten_person(
    fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The e-mail address is in the files of the erasable buckets before, also after it was changed, and in no file of the server after; the
    files of the log and of the commands never had it."""
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", fresh_nats.monitor)
    bus = await connect(fresh_nats.url, name="gateway")
    await bus.ensure()
    access_bus = await connect(fresh_nats.url, name="access")
    service = Service(access_bus, AccessCore, writer="access", sources=[CommandSource("access")])
    serving = asyncio.create_task(service.run())
    gateway = await build(bus, GatewaySettings(sign_on="local", decision_wait_s=30.0))
    background = asyncio.create_task(gateway.background())

    def files() -> list[str]:
        """Streams whose files have the address."""
        return sorted(
            {
                path.relative_to(fresh_nats.store_dir).parts[3]
                for path in fresh_nats.store_dir.rglob("*")
                if path.is_file() and CANARY.encode() in path.read_bytes()
            }
        )

    try:
        await eventually_async(lambda: gateway.folding.caught_up)
        accounts = gateway.accounts
        await accounts.make_owner("owner")
        new = NewPerson("ann", "Ann", CANARY, "corp")
        for name in ("Ann", "Ann Example"):
            principal = await accounts.admit_person(("corp", "1"), new._replace(name=name))
        await accounts.open_session(principal, SignInAt("corp", sid="s", agent=CANARY))
        await accounts.credentials.set_password(principal, CANARY)
        rule = Rule(id="n1", owner=principal, channel="webhook", to=f"https://{CANARY}/", kinds=("end",))
        await gateway.rules.add(rule)
        assert await asyncio.to_thread(files) == ["KV_CREDENTIAL", "KV_NOTIFY", "KV_PEOPLE"]
        await accounts.forget(RequestHead(user=""), principal)
        await eventually_async(lambda: files() == [])
        assert await bus.keys("PEOPLE", "principal") != [f"principal.{principal}"]
        assert not gateway.views.access.access.principals[principal]
    finally:
        background.cancel()
        await service.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await background
        await asyncio.gather(serving, return_exceptions=True)
        await bus.close()
        await access_bus.close()


async def test_a_hundred_thousand_tokens_take_at_most_100_megabytes() -> None:
    """All of them in the folded state, and all of them used at this gateway, so that their callers are in memory."""
    count, now_ns = 100_000, time.time_ns()
    texts = [f"token-{number}" for number in range(count)]
    tracemalloc.start()
    try:
        views = Views()
        rows: dict[str, CredentialRow] = {}
        for number in range(count):
            principal, token = f"p{number // 20:012}", f"t{number:012}"
            views.access.kinds[principal] = "person"
            views.access.access.principals[principal] = True
            views.access.add_token(
                Token(token, principal, "person", now_ns + DAY_NS, ("job:read",), ("queue:research",))
            )

        class Lookup:
            async def find(self, digest: str) -> CredentialRow | None:
                return rows.get(digest)

        callers = Callers(views, Lookup())
        for number, text in enumerate(texts):
            rows[digest(text)] = CredentialRow("token", f"t{number:012}", f"p{number // 20:012}")
            headers = [(b"authorization", b"Bearer " + text.encode())]
            caller = await callers.of({"headers": headers, "method": "GET", "client": ("127.0.0.1", 1)})
            assert caller.credential == f"t{number:012}"
            rows.clear()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(callers.known()) == count
    print(f"{taken / 1e6:.0f} MB")
    assert taken <= 100_000_000
