"""Mail to a real SMTP server: digests, own addresses, headers, failures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import msgspec
import pytest
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from fairlead_gateway.notify.settings import MailServer
from fairlead_schemas.wire import subjects
from tests.gateway.notify.notify_world import NotifyWorld
from tests.kit.eventually import eventually_async

#: Loopback needs no TLS.
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")


class Postman:
    """Handler of a mail server that keeps its mails, and refuses while `answer` says so."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.answer = "250 OK"
        self.logins: list[tuple[bytes, bytes]] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 -- aiosmtpd's name
        """Keep a mail."""
        if self.answer.startswith("250"):
            mail = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(mail, EmailMessage)
            self.mails.append(mail)
            self.recipients.append(envelope.rcpt_tos)
        return self.answer

    def authenticate(self, _server: Any, _session: Any, _envelope: Any, _mechanism: Any, data: Any) -> AuthResult:
        """Take every login."""
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=True)


@asynccontextmanager
async def mail_server() -> AsyncIterator[tuple[Postman, MailServer]]:
    """A mail server on loopback that wants a login, and its settings."""
    handler = Postman()

    def protocol() -> SMTP:
        return SMTP(handler, authenticator=handler.authenticate, auth_require_tls=False, auth_required=True)

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield handler, MailServer("smtp+plain", "127.0.0.1", port, "fairlead@example.org", "bot", "secret")


async def _person(world: NotifyWorld, email: str) -> None:
    await world.bus.put(subjects.PEOPLE, "principal.ada", msgspec.json.encode({"login": "ada", "email": email}))


async def test_a_person_gets_mail_at_their_own_address() -> None:
    """What waits is one mail, in order; headers are safe whatever a job is named."""
    async with mail_server() as (handler, server), NotifyWorld(mail=server, mail_every_s=0.05) as world:
        await _person(world, "ada@example.org")
        await world.rule("n1", "", channel="mail", secret="")
        for number in range(5):
            await world.ended_job(name=f"job {number}\r\nBcc: eve@example.org")
        await world.start()
        await eventually_async(lambda: world.delivery_is("n1", sent=5))
        (mail,) = handler.mails
        assert handler.recipients == [["ada@example.org"]] and handler.logins == [(b"bot", b"secret")]
        assert mail["To"] == "ada@example.org" and mail["Bcc"] is None
        assert mail["Subject"].strip() == "[fairlead] job 1 (job 0 Bcc: eve@example.org) was cancelled (and 4 more)"
        assert (mail["Message-ID"], mail["Auto-Submitted"]) == ("<n1.3.1@example.org>", "auto-generated")
        lines = mail.get_content().splitlines()[:5]
        assert [line.split("  ")[1].split(" ")[1] for line in lines] == ["1", "2", "3", "4", "5"]
        await world.ended_job()
        await eventually_async(lambda: len(handler.mails) == 2)
        assert handler.mails[1]["Subject"] == "[fairlead] job 6 (job-6) was cancelled"


async def test_a_mail_server_that_refuses_gets_it_again() -> None:
    """Its owner sees the number of the answer, and no text of the server. An address that is missing is named."""
    async with mail_server() as (handler, server), NotifyWorld(mail=server) as world:
        handler.answer = "451 secret text of a server"
        await world.rule("n1", "", channel="mail", secret="")
        await world.start()
        await world.ended_job()
        assert (await world.in_state("n1", "failing")).error == "this cluster knows no mail address of yours"
        await _person(world, "ada@example.org")
        await eventually_async(lambda: world.error_is("n1", "the mail server answered 451"))
        handler.answer = "250 OK"
        await eventually_async(lambda: world.delivery_is("n1", sent=1))
        assert len(handler.mails) == 1


async def test_without_a_mail_server_the_owner_sees_so() -> None:
    """Also where it does not listen."""
    async with NotifyWorld() as world:
        await world.rule("n1", "ada@example.org", channel="mail", secret="")
        await world.start()
        await world.ended_job()
        assert (await world.in_state("n1", "failing")).error == "no mail server is configured (FAIRLEAD_SMTP)"
    async with NotifyWorld(mail=MailServer("smtp", "127.0.0.1", 1, "f@example.org")) as world:
        await world.rule("n1", "ada@example.org", channel="mail", secret="")
        await world.start()
        await eventually_async(lambda: world.test_has_failed("n1", "the mail server cannot be used"))
