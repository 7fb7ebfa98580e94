"""The end of a sign-in at its provider: it reaches all that the sign-in has allowed, however long ago, and also after a failure half-way."""

from typing import Any

import msgspec
import pytest

from fairlead_bus.port import Unavailable
from fairlead_gateway.access.accounts import CliSignIn, SignInAt
from fairlead_gateway.access.credentials import INDEX_SHORT
from fairlead_gateway.signon.jwt_check import LOGOUT_EVENT, BadToken
from fairlead_gateway.signon.oidc import GrantRefused, OidcProvider
from fairlead_gateway.signon.provider_sessions import ProviderSessions
from fairlead_gateway.signon.sealing import Sealing
from fairlead_gateway.signon.settings import Provider
from fairlead_gateway.signon.short_lived import ShortLived
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS
from tests.gateway.access.accounts_world import AccountsWorld
from tests.kit.token_issuer import CLIENT, ISSUER, NOW_S, TokenIssuer, claims, sign

SEALING = Sealing([b"k" * 32])
SETTINGS = Provider(name="corp", issuer=ISSUER, client_id=CLIENT, client_secret="s", admit="everyone")


class LogoutWorld(AccountsWorld):
    """A gateway with the played provider "corp", and a person who signed in there."""

    async def __aenter__(self) -> "LogoutWorld":
        await super().__aenter__()
        self.played = TokenIssuer()
        self.provider = OidcProvider(
            SETTINGS, "https://f.example.org", self.played.client(), SEALING, lambda: float(NOW_S)
        )
        gateway = self.gateway
        self.sessions = ProviderSessions(
            {"corp": self.provider},
            gateway.views,
            gateway.accounts,
            gateway.callers,
            SEALING,
            ShortLived(self.bus),
            HOUR_NS,
            lambda: int(NOW_S * SECOND_NS),
        )
        self.ann = await self.person("ann", "")
        return self

    def logout_token(self, **more: Any) -> str:
        """Return what the provider sends when a session there ends."""
        body = claims(sid="s1", jti="j1", events={LOGOUT_EVENT: {}}, **more)
        return sign(self.played.key, "ES256", {name: value for name, value in body.items() if name != "nonce"})

    async def browser(self, sid: str = "s1", refresh: str = "") -> tuple[str, str]:
        """Open a session of a browser: its id and text."""
        return await self.gateway.accounts.open_session(self.ann, SignInAt("corp", sid, refresh))

    async def command(self, sid: str = "s1", browser: str = "") -> CliSignIn:
        """Open the sign-in of a command, which a browser has allowed. `browser`: its session, where the sign-in there continues."""
        credentials = self.gateway.accounts.credentials
        note = await credentials.note("session", browser) if browser else None
        at = SignInAt("corp", sid, sign_in=note.sign_in if note else "")
        return await self.gateway.accounts.open_cli(self.ann, at)

    async def status(self, text: str) -> int:
        """Status of a request by a session."""
        return (await self.send("GET", "/v1/whoami", token=text)).status_code

    async def renewed(self, refresh: str) -> int:
        """Status of a renewal by a refresh token."""
        form = {"grant_type": "refresh_token", "refresh_token": refresh}
        return (await self.http.post("/v1/token", data=form)).status_code


async def test_a_logout_ends_a_command_that_slept_for_hours() -> None:
    """A laptop that slept for two hours has no session, and a refresh token of 30 days."""
    async with LogoutWorld() as world:
        accounts = world.gateway.accounts
        tokens = await world.command()
        await accounts.end_session(tokens.session, "expired")
        await accounts.credentials.erase_old_links()
        assert await world.sessions.logout(world.provider, world.logout_token()) > 0
        assert await world.renewed(tokens.refresh) == 400


async def test_a_logout_ends_the_browser_next_to_a_busy_command() -> None:
    """A command that renews its sign-in again and again opens a session each time."""
    async with LogoutWorld() as world:
        _, text = await world.browser()
        tokens = await world.command()
        for _ in range(INDEX_SHORT + 1):
            tokens = await world.gateway.accounts.refresh(tokens.refresh)
        await world.sessions.logout(world.provider, world.logout_token())
        assert [await world.status(each) for each in (text, tokens.access)] == [401, 401]


async def test_a_logout_that_fails_half_way_can_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider gets an error and repeats the token; once it was carried out it is refused."""
    async with LogoutWorld() as world:
        _, text = await world.browser()
        accounts, token = world.gateway.accounts, world.logout_token()

        async def away(*_: Any) -> int:
            raise Unavailable("planted")

        with monkeypatch.context() as patch:
            patch.setattr(accounts, "end_sessions_of", away)
            with pytest.raises(Unavailable):
                await world.sessions.logout(world.provider, token)
        await world.sessions.logout(world.provider, token)
        assert await world.status(text) == 401
        with pytest.raises(BadToken, match="used before"):
            await world.sessions.logout(world.provider, token)


def sealed(token: str = "r") -> str:
    """Return a refresh token of the provider, sealed."""
    return SEALING.seal(msgspec.json.encode({"subject": "s", "token": token}), "refresh")


LATER_NS = int(NOW_S * SECOND_NS) + 100 * 365 * 24 * HOUR_NS


@pytest.mark.parametrize("sid", ["s1", ""])
async def test_a_command_in_use_asks_the_provider_after_the_browser_is_gone(
    sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the newest refresh token of the one sign-in, which rotates; a refusal ends the command, and what the person has elsewhere stays."""
    async with LogoutWorld() as world:
        accounts, shown = world.gateway.accounts, list[str]()
        browser, _ = await world.browser(sid, sealed("r1"))
        tokens = await world.command(sid, browser)
        other = await accounts.open_cli(world.ann, SignInAt("local"))

        async def rotate(token: str, _subject: str) -> tuple[None, str]:
            if token == "r3":
                raise GrantRefused("invalid_grant")
            shown.append(token)
            return None, f"r{len(shown) + 1}"

        monkeypatch.setattr(world.provider, "refresh", rotate)
        await world.sessions._refresh(browser, LATER_NS)
        await accounts.end_sign_in(world.ann, browser, "expired")
        await accounts.erase_old_sign_ins()
        tokens = await accounts.refresh(tokens.refresh)
        assert await world.status(tokens.access) == 200
        await world.sessions._refresh(tokens.session, LATER_NS)
        assert shown == ["r1"], "the sign-in was tried just now"
        await world.sessions._refresh(tokens.session, LATER_NS + HOUR_NS)
        assert shown == ["r1", "r2"] and await world.status(tokens.access) == 200
        await world.sessions._refresh(tokens.session, LATER_NS + 2 * HOUR_NS)
        assert [await world.status(tokens.access), await world.renewed(tokens.refresh)] == [401, 400]
        assert await world.renewed(other.refresh) == 200


async def test_a_sign_in_that_nothing_goes_on_is_erased() -> None:
    """Once its last session and command have ended; at once where the person is forgotten."""
    async with LogoutWorld() as world:
        accounts, now_ns = world.gateway.accounts, world.gateway.accounts._clock()
        browser, _ = await world.browser(refresh=sealed())
        tokens = await world.command(browser=browser)
        note = await accounts.credentials.note("session", browser)
        assert note is not None and await accounts.credentials.sign_in(note.sign_in) is not None
        accounts.credentials._clock = lambda: now_ns + HOUR_NS
        await accounts.end_sign_in(world.ann, browser, "signed_out")
        await accounts.erase_old_sign_ins()
        assert await accounts.credentials.sign_in(note.sign_in) is not None
        await accounts.end_sign_in(world.ann, tokens.session, "signed_out")
        await accounts.erase_old_sign_ins()
        assert await accounts.credentials.sign_in(note.sign_in) is None


@pytest.mark.parametrize("sid", ["s1", ""])
async def test_a_refused_sign_in_ends_what_it_allowed(sid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Providers without a logout say it by refusing the refresh token of the browser's sign-in."""
    async with LogoutWorld() as world:
        session, text = await world.browser(sid, sealed())
        tokens = await world.command(sid)
        other = await world.gateway.accounts.open_cli(world.ann, SignInAt("local"))

        async def refuse(*_: Any) -> None:
            raise GrantRefused("invalid_grant")

        monkeypatch.setattr(world.provider, "refresh", refuse)
        await world.sessions._refresh(session, LATER_NS)
        assert await world.status(text) == 401
        assert [await world.renewed(each.refresh) for each in (tokens, other)] == [400, 200]
