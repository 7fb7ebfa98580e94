"""Sessions that were opened at identity providers, for as long as the provider stands by them.

A sign-in with a refresh token is tried every five minutes while a session of it is in use, a browser's or a command's, and all of them end
when the provider refuses. A session without one ends with its ID token. The provider's own logout ends sessions at once. Start at `ProviderSessions.sign_in`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec
import structlog
from msgspec import structs

from fairlead_bus.port import BusError
from fairlead_gateway.access.accounts import Accounts, NewPerson, SignInAt
from fairlead_gateway.access.callers import Callers
from fairlead_gateway.access.credentials import CredentialNote, ProviderSignIn
from fairlead_gateway.access.directory_people import DirectoryPeople
from fairlead_gateway.access.people import identity_key
from fairlead_gateway.errors import EarlyAnswer
from fairlead_gateway.signon.jwt_check import SKEW_S, BadToken
from fairlead_gateway.signon.keys import ProviderUnavailable
from fairlead_gateway.signon.oidc import STATE_S, GrantRefused, OidcProvider, ProviderAccount, SignInFailed
from fairlead_gateway.signon.sealing import Sealing
from fairlead_gateway.signon.short_lived import ShortLived
from fairlead_gateway.views.fold import Views
from fairlead_schemas.units.timestamps import DAY_NS, MINUTE_NS, SECOND_NS

log = structlog.get_logger()

REFRESH_NS = 5 * MINUTE_NS
LOOK_S = 10.0
#: Between two removals of expired rows.
ERASE_S = 600.0
#: A logout token's id is kept for so long; tokens are refused long before.
JTI_S = DAY_NS // SECOND_NS
#: Age from which a logout token is refused: kept ids need not be remembered for longer.
LOGOUT_AGE_S = 600

_PURPOSE = "refresh"


class _Kept(msgspec.Struct, frozen=True):
    """Refresh token with the person that it belongs to."""

    subject: str
    token: str


class ProviderSessions:
    """Sign-ins at providers, and the life of their sessions. `clock`: Unix ns."""

    def __init__(
        self,
        providers: Mapping[str, OidcProvider],
        views: Views,
        accounts: Accounts,
        callers: Callers,
        sealing: Sealing,
        short_lived: ShortLived,
        life_ns: int,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.providers = providers
        self._memberships = {name: DirectoryPeople(views, accounts, name) for name in providers}
        self._accounts = accounts
        self._callers = callers
        self._sealing = sealing
        self._short_lived = short_lived
        self._life_ns = life_ns
        self._clock = clock
        #: {session: earliest Unix ns of the next look at its row}
        self._next_look: dict[str, int] = {}

    async def sign_in(
        self, provider: OidcProvider, answer: Mapping[str, str], cookie: str, address: str, agent: str
    ) -> tuple[str, int, str]:
        """Return a new session's text, its life (s) and the path to continue at. Raise SignInFailed, ProviderUnavailable, HttpError."""
        person, target = await provider.finish(answer, cookie)
        if not await self._short_lived.once("state " + answer["state"], STATE_S):
            raise SignInFailed("state: this sign-in was finished before", "begin the sign-in again")
        name = provider.settings.name
        new = NewPerson(person.login, person.name, person.email, source=name)
        principal = await self._accounts.admit_person((person.issuer, person.subject), new)
        await self._sync(principal, name, person)
        life_ns, sealed = self._life_ns, ""
        if person.refresh_token:
            sealed = self._seal(person.subject, person.refresh_token)
        else:
            life_ns = min(life_ns, int(person.expires_s * SECOND_NS) - self._clock())
        at = SignInAt(name, person.sid, sealed, address, agent)
        session, text = await self._accounts.open_session(principal, at, life_ns=max(life_ns, SECOND_NS))
        log.info("signed in", provider=name, principal=principal, session=session, refreshed=bool(sealed))
        return text, life_ns // SECOND_NS, target

    async def _sync(self, principal: str, name: str, person: ProviderAccount) -> None:
        if self.providers[name].settings.groups_claim:
            unfit = await self._memberships[name].set_groups(principal, person.groups)
            if unfit:
                log.warning("groups without a possible name", provider=name, principal=principal, groups=unfit[:10])

    def _seal(self, subject: str, token: str) -> str:
        return self._sealing.seal(msgspec.json.encode(_Kept(subject, token)), _PURPOSE)

    # ------------------------------------------------------------------------------- logout

    async def logout(self, provider: OidcProvider, token: str) -> int:
        """End the sessions that a logout token names, and return their number. Raise BadToken and ProviderUnavailable."""
        claims = await provider.read_logout(token)
        name = provider.settings.name
        if claims["iat"] < self._clock() / SECOND_NS - LOGOUT_AGE_S - SKEW_S:
            raise BadToken(f"iat: older than {LOGOUT_AGE_S} s")
        mark = f"jti {name} {claims['jti']}"
        if await self._short_lived.has(mark):
            raise BadToken("jti: this logout token was used before")
        ended = await self._accounts.end_sessions_of(name, sid) if (sid := claims.get("sid")) else 0
        if not ended and claims.get("sub"):
            key = identity_key((provider.settings.issuer, claims["sub"]))
            principal = await self._accounts.people.claimed(key)
            ended = await self._accounts.end_sessions_at(name, principal) if principal else 0
        # Last: a provider sends the token again when this fails half-way, and to end a session twice changes nothing.
        await self._short_lived.once(mark, JTI_S)
        log.info("signed out by the provider", provider=name, sessions=ended)
        return ended

    # ------------------------------------------------------------------------------- refresh

    async def run(self) -> None:
        """Try refresh tokens without end. What is unreachable is tried again in the next round."""
        erase_at = 0.0
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.refresh_used()
                if time.monotonic() >= erase_at:
                    erase_at = time.monotonic() + ERASE_S
                    await self._short_lived.erase_old()
            except (BusError, EarlyAnswer) as error:
                log.warning("upkeep of sessions at providers failed", reason=str(error))

    async def refresh_used(self) -> None:
        """Try the refresh tokens of the sessions in use whose last try is long ago."""
        now_ns = self._clock()
        used = {
            caller.credential
            for caller in self._callers.known()
            if not caller.is_token and caller.used_ns > now_ns - REFRESH_NS
        }
        self._next_look = {session: at for session, at in self._next_look.items() if session in used}
        for session in used:
            if self._next_look.get(session, 0) <= now_ns:
                self._next_look[session] = await self._refresh(session, now_ns)

    async def _refresh(self, session: str, now_ns: int) -> int:
        """Try one session's refresh token if it is due. Return when to look again (Unix ns)."""
        credentials = self._accounts.credentials
        note = await credentials.note("session", session)
        row = await credentials.sign_in(note.sign_in) if note is not None else None
        if note is None or row is None or note.provider not in self.providers:
            return now_ns + REFRESH_NS
        due_ns = max(row.refreshed_ns, row.made_ns) + REFRESH_NS
        if due_ns > now_ns:
            return due_ns

        def take(found: ProviderSignIn) -> ProviderSignIn | None:
            # Providers that rotate refresh tokens end the whole sign-in X.
            return structs.replace(found, refreshed_ns=now_ns) if found.refreshed_ns == row.refreshed_ns else None

        if await credentials.amend_sign_in(note.sign_in, take):
            await self._try(session, note, row)
        return now_ns + REFRESH_NS

    async def _try(self, session: str, note: CredentialNote, row: ProviderSignIn) -> None:
        opened = self._sealing.open(row.refresh, _PURPOSE)
        provider = self.providers[note.provider]
        try:
            if opened is None:
                raise GrantRefused("the key that sealed the refresh token is gone")
            kept = msgspec.json.decode(opened, type=_Kept)
            person, following = await provider.refresh(kept.token, kept.subject)
        except GrantRefused as error:
            log.info("session ended: the provider refuses", provider=note.provider, session=session, reason=str(error))
            await self._accounts.end_at_provider(session)
            return
        except ProviderUnavailable as error:
            log.warning("session not refreshed", provider=note.provider, session=session, reason=str(error))
            return
        if following != kept.token:
            sealed = self._seal(kept.subject, following)
            await self._accounts.credentials.amend_sign_in(
                note.sign_in, lambda found: structs.replace(found, refresh=sealed)
            )
        if person is not None:
            await self._sync(note.principal, note.provider, person)
