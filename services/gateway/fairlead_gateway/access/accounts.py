"""Operations on principals, sessions and tokens: rows in the buckets first, then one command to the access service.

The order makes crashes harmless: rows without an event of the log give nobody anything, and `upkeep.py` erases them later. What the
access service refuses is erased at once. A command of a person has the person's name and authority; those of a sign-in have none,
and are only sent from here. Start at `Accounts.admit_person` and `Accounts.issue_token`.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from msgspec import structs

from fairlead_bus.port import Bus
from fairlead_gateway.access.audit_reader import forget as forget_record
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.credentials import CredentialNote, Credentials, ProviderSignIn, SignInCode, sid_index
from fairlead_gateway.access.people import Identity, PeopleStore, PersonRow, identity_key, login_key
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter, UndecidedCommand
from fairlead_gateway.errors import HttpError
from fairlead_gateway.http_messages import RequestHead
from fairlead_gateway.views.fold import Views
from fairlead_schemas.policies.rights import Verb
from fairlead_schemas.units.ids import TOKEN_CHARS_MAX, is_token
from fairlead_schemas.units.timestamps import DAY_NS, HOUR_NS, MINUTE_NS
from fairlead_schemas.units.token_text import RANDOM_BYTES, TokenLetter, check, digest, family_digest, make, rotated
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.access_records import ADDRESS_CHARS_MAX, AccessEntry, AccessKind
from fairlead_schemas.wire.events.access import EndReason, PrincipalKind, TokenKind

SESSION_LIFE_NS = 12 * HOUR_NS
#: Of a sign-in of the command: its sessions, each opened by a refresh token; and the refresh tokens themselves.
ACCESS_LIFE_NS = HOUR_NS
REFRESH_LIFE_NS = 30 * DAY_NS
LINK_LIFE_NS = 10 * MINUTE_NS
OWNER_LIFE_NS = 366 * DAY_NS
#: The longest wait for the log's end, and the pause between two looks.
CATCH_UP_S, CATCH_UP_LOOK_S = 5.0, 0.002
#: Login names that are tried where the wanted one belongs to another principal: ann, ann-2 to ann-9.
LOGINS_TRIED = 9
#: Source of the owner, whom the set-up of the cluster makes.
SET_UP = "up"

_ID_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID_CHARS = 12
_ID = re.compile(r"\b[ps][a-z0-9]{12}\b")
_LETTERS: dict[TokenKind, TokenLetter] = {"person": "p", "service": "s", "refresh": "r", "app": "a", "owner": "p"}


def new_id(letter: str) -> str:
    """Return an opaque id: "p" of a person, "s" of a service account, "t" of a token, "i" of a session."""
    return letter + "".join(secrets.choice(_ID_DIGITS) for _ in range(_ID_CHARS))


async def _none(_principal: str) -> None:
    """Erase nothing."""


class NewPerson(NamedTuple):
    """Facts of a provider or an admin about somebody who is to be admitted."""

    login: str
    name: str = ""
    email: str = ""
    source: str = "local"


class SignInAt(NamedTuple):
    """Circumstances of a sign-in."""

    provider: str
    #: Session at the provider, and its refresh token, sealed.
    sid: str = ""
    refresh: str = ""
    address: str = ""
    agent: str = ""
    #: Sign-in at the provider that goes on, in place of a refresh token.
    sign_in: str = ""


class CliSignIn(NamedTuple):
    """Texts of a command's sign-in, shown once."""

    access: str
    refresh: str
    session: str


class Accounts:
    """Operations over both buckets and the log. `clock`: Unix ns."""

    def __init__(
        self,
        bus: Bus,
        views: Views,
        people: PeopleStore,
        credentials: Credentials,
        gate: CommandPublisher,
        waiter: ResultWaiter,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._bus = bus
        self._views = views
        self.people = people
        self.credentials = credentials
        self._gate = gate
        self._waiter = waiter
        self._clock = clock
        #: Keeps an entry of the record of access.
        self.note: Callable[[AccessEntry], None] = lambda _entry: None
        #: Forgets the entries of a person that are not written yet.
        self.drop_notes: Callable[[str], None] = lambda _person: None
        #: Erases the rules of notifications of a person.
        self.forget_rules: Callable[[str], Awaitable[None]] = _none

    # ------------------------------------------------------------------------------- principals

    async def admit_person(self, identity: Identity, new: NewPerson) -> str:
        """Return the principal of a provider's identity, which is admitted at its first sign-in, without any right. Two gateways
        that do so at once find the same one. People are known by issuer and subject alone, never by an e-mail address. Raise
        HttpError (403) for a suspended one.
        """
        key = identity_key(identity)
        principal = await self.people.claimed(key)
        if not principal:
            principal = new_id("p")
            await self.people.write(principal, self._row(new, identities=(identity,)))
            winner = await self.people.claim(key, principal)
            if winner != principal:
                await self.people.erase(principal)
                principal = winner
        if not self._views.access.access.principals.get(principal, True):
            raise suspended()
        row = await self.people.find(principal) or self._row(new, identities=(identity,))
        login = await self.claim_login(new.login, principal, row)
        shown = structs.replace(row, login=login, name=new.name, email=new.email)
        if shown != await self.people.find(principal):
            await self.people.write(principal, shown)
        if principal not in self._views.access.kinds:
            await self.send(cmd.AdmitPrincipal(id=self._gate.new_id(), principal=principal, first=True))
        if not self._views.access.access.principals.get(principal, False):
            raise suspended()
        return principal

    async def claim_login(self, wanted: str, principal: str, row: PersonRow) -> str:
        """Return the principal's login name, or claim a free one like the wanted one; "" where there is none.

        A name is in the row before it is claimed, so that the claims of a principal are always known by its row.
        """
        if not is_token(wanted):
            return ""
        tried = _numbered(wanted)
        for login in [row.login, *tried] if row.login else tried:
            key = login_key(login)
            if await self.people.claimed(key) == principal:
                return login
            await self.people.write(principal, structs.replace(row, login=login))
            if await self.people.claim(key, principal) == principal:
                return login
        return ""

    async def create(self, head: RequestHead, kind: PrincipalKind, new: NewPerson, phc: str = "") -> str:
        """Return a new principal with a login name. Raise HttpError: 409 for a name that is taken, 403 without the right."""
        principal = new_id("s" if kind == "service" else "p")
        await self.people.write(principal, self._row(new, kind=kind, login=new.login))
        if await self.people.claim(login_key(new.login), principal) != principal:
            await self.people.erase(principal)
            raise HttpError(409, "login_taken", f'the login name "{new.login}" belongs to another principal')
        if phc:
            await self.credentials.set_password(principal, phc)
        try:
            await self.send(
                cmd.AdmitPrincipal(
                    id=self._gate.new_id(head.caller.principal),
                    user=head.user,
                    authority=head.authority,
                    principal=principal,
                    kind=kind,
                )
            )
        except HttpError as refused:
            if refused.status < 500:
                await self.erase_principal(principal)
            raise
        return principal

    def _row(self, new: NewPerson, **more: object) -> PersonRow:
        row = PersonRow(name=new.name, email=new.email, source=new.source, made_ns=self._clock())
        return structs.replace(row, **more)

    async def forget(self, head: RequestHead, principal: str) -> None:
        """Suspend a principal, then erase its rows of both buckets, its rules of notifications and its record of access. The log keeps the opaque id. Raise
        HttpError where it may not be suspended. Can be repeated after a crash.
        """
        await self.send(
            cmd.SuspendPrincipal(
                id=self._gate.new_id(head.caller.principal),
                user=head.user,
                authority=head.authority,
                principal=principal,
                forget=True,
            )
        )
        access = self._views.access
        await self.credentials.erase_not_in_force("token", access.tokens.__contains__, principal)
        await self.credentials.erase_not_in_force("session", access.sessions.__contains__, principal)
        await self.forget_rules(principal)
        await self.credentials.erase_sign_ins(frozenset(), principal)
        await self.erase_principal(principal)
        self.drop_notes(principal)
        await forget_record(self._bus, principal)

    async def erase_old_sign_ins(self) -> None:
        """Erase sign-ins at providers that no session and no command goes on. Raises Unavailable."""
        access = self._views.access
        families = [each for each, token in access.tokens.items() if token.kind == "refresh"]
        notes = await self.credentials.notes("session", [*access.sessions])
        notes |= await self.credentials.notes("token", families)
        await self.credentials.erase_sign_ins(frozenset(each.sign_in for each in notes.values()))

    async def forget_late_records(self) -> None:
        """Erase the records of access of those who are forgotten: gateways may have written entries that waited. Raises Unavailable."""
        for principal, is_active in list(self._views.access.access.principals.items()):
            if not is_active and await self.people.find(principal) is None:
                await forget_record(self._bus, principal)

    async def erase_principal(self, principal: str) -> None:
        """Erase a principal's password, and its row with its claims. Raises Unavailable."""
        await self.credentials.erase_password(principal)
        await self.people.erase(principal)

    # ------------------------------------------------------------------------------- sessions

    async def open_session(
        self, principal: str, at: SignInAt, *, life_ns: int = SESSION_LIFE_NS, text: str = "", signed_in_ns: int = 0
    ) -> tuple[str, str]:
        """Return (id, text) of a new session; the text is a cookie's value unless one is given. Raise HttpError."""
        session, now_ns = new_id("i"), self._clock()
        text = text or secrets.token_urlsafe(32)
        sign_in = at.sign_in
        if at.refresh:
            sign_in = new_id("r")
            row = ProviderSignIn(principal=principal, refresh=at.refresh, made_ns=now_ns)
            await self.credentials.write_sign_in(sign_in, row)
        note = CredentialNote(
            principal=principal,
            digest=digest(text),
            made_ns=now_ns,
            signed_in_ns=signed_in_ns or now_ns,
            provider=at.provider,
            sid=at.sid,
            sign_in=sign_in,
            address=at.address,
            agent=at.agent,
        )
        await self.credentials.write("session", session, note)
        command = cmd.OpenSession(
            id=self._gate.new_id(),
            session=session,
            principal=principal,
            provider=at.provider,
            expires_ns=now_ns + life_ns,
        )
        await self._send_or_erase(command, "session", session)
        if not signed_in_ns:  # else a sign-in of before goes on
            self._note_sign_in("signed_in", principal, at.provider, at.address)
        return session, text

    def note_failure(self, provider: str, address: str, principal: str = "") -> None:
        """Note a sign-in that failed; `principal`: whose name was given, where there is such a person."""
        self._note_sign_in("sign_in_failed", principal, provider, address)

    def note_refused_token(self, via: str, address: str, principal: str = "") -> None:
        """Note a token that was refused. `via`: the provider that should have signed it, or the grant for which it was sent."""
        self._note_sign_in("token_refused", principal, via, address)

    def _note_sign_in(self, kind: AccessKind, principal: str, via: str, address: str = "") -> None:
        self.note(AccessEntry(kind=kind, at_ns=0, principal=principal, via=via, address=address[:ADDRESS_CHARS_MAX]))

    async def end_session(self, session: str, reason: EndReason, head: RequestHead | None = None) -> None:
        """End a session; none is fine. `head`: of the request that ends it; None: the gateway or a provider does."""
        held = self._views.access.sessions.get(session)
        if held is not None:
            self._note_sign_in("signed_out", held.principal, f"session:{session}")
            await self.send(
                cmd.EndSession(
                    id=self._gate.new_id(head.caller.principal if head else ""),
                    user=head.user if head else "",
                    authority=head.authority if head else None,
                    session=session,
                    reason=reason,
                )
            )
        await self.credentials.erase("session", session)

    async def end_sessions_of(self, provider: str, sid: str) -> int:
        """End the sessions and the families of refresh tokens of one session at a provider, as it demands. Return the number of sessions
        and families.
        """
        items = await self.credentials.items_of(sid_index(provider, sid))
        for kind, item in items:
            if kind == "session":
                await self.end_session(item, "provider")
            else:
                await self.end_family(item, "provider")
        return len(items)

    async def end_sessions_at(self, provider: str, principal: str) -> int:
        """End all sessions and families of refresh tokens that a principal opened at a provider, as it demands. Return their number."""
        sessions = await self.credentials.notes("session", [*self._views.access.sessions_of.get(principal, ())])
        families = await self.credentials.notes("token", self._families_of(principal))
        ended = [item for item, note in (sessions | families).items() if note.provider == provider]
        for item in ended:
            if item in sessions:
                await self.end_session(item, "provider")
            else:
                await self.end_family(item, "provider")
        return len(ended)

    async def end_at_provider(self, session: str) -> None:
        """End a session whose sign-in the provider refuses, and what goes on the same sign-in: all of the same session there; at a
        provider that names none, all families of refresh tokens that the person has by it, and the sessions of this sign-in.
        """
        note = await self.credentials.note("session", session)
        if note is not None and note.sid:
            await self.end_sessions_of(note.provider, note.sid)
        elif note is not None:
            families = await self.credentials.notes("token", self._families_of(note.principal))
            for family, each in families.items():
                if each.provider == note.provider:
                    await self.end_family(family, "provider")
            sessions = [*self._views.access.sessions_of.get(note.principal, ())]
            for other, each in (await self.credentials.notes("session", sessions)).items():
                if each.sign_in and each.sign_in == note.sign_in:
                    await self.end_session(other, "provider")
        await self.end_session(session, "provider")

    async def end_sign_in(
        self, principal: str, session: str, reason: EndReason, head: RequestHead | None = None
    ) -> None:
        """End a session for good, with the refresh tokens of a command that opened it: those first, so that no crash leaves one that
        could open the next session. `head`: as of `end_session`.
        """
        await self._end_families(principal, lambda opened: opened == session)
        await self.end_session(session, reason, head)

    async def end_other_sign_ins(self, principal: str, kept: str = "") -> int:
        """End all sessions of a principal and their refresh tokens, but for one session and its own. Return the number of sessions."""
        await self._end_families(principal, lambda opened: not kept or opened != kept)
        ended = [each for each in self._views.access.sessions_of.get(principal, ()) if each != kept]
        for session in ended:
            await self.end_session(session, "revoked")
        return len(ended)

    async def _end_families(self, principal: str, is_meant: Callable[[str], bool]) -> None:
        """End families of refresh tokens by the session that the newest of each opened."""
        for family, note in (await self.credentials.notes("token", self._families_of(principal))).items():
            if is_meant(note.session) and family in self._views.access.tokens:
                await self.revoke_token(family)

    def _families_of(self, principal: str) -> list[str]:
        tokens = self._views.access.tokens
        return [each for each in self._views.access.tokens_of.get(principal, ()) if tokens[each].kind == "refresh"]

    async def set_password(self, principal: str, phc: str, caller: Caller, address: str) -> None:
        """Store the hash of a password. The record of access of both has it, as an admin could sign in as the person afterwards."""
        await self.credentials.set_password(principal, phc)
        self.note(
            AccessEntry(
                kind="password_set",
                at_ns=0,
                principal=caller.principal,
                via=caller.via,
                owner=principal,
                address=address[:ADDRESS_CHARS_MAX],
            )
        )

    async def signed_in_ns(self, session: str) -> int:
        """Return when the person of a session signed in (Unix ns); 0 for an unknown session."""
        note = await self.credentials.note("session", session)
        return note.signed_in_ns if note is not None else 0

    # ------------------------------------------------------------------------------- sign-in of the command

    async def open_cli(self, principal: str, at: SignInAt, signed_in_ns: int = 0) -> CliSignIn:
        """Return a session of an hour and the refresh token that opens the next one. `signed_in_ns`: when the person signed in; 0: now.
        Raise HttpError.
        """
        access, refresh = make("p", secrets.token_bytes(RANDOM_BYTES)), make("r", secrets.token_bytes(RANDOM_BYTES))
        session, _ = await self.open_session(
            principal, at, life_ns=ACCESS_LIFE_NS, text=access, signed_in_ns=signed_in_ns
        )
        family, now_ns = new_id("t"), self._clock()
        note = CredentialNote(
            principal=principal,
            digest=digest(refresh),
            family=family_digest(refresh),
            name=f"sign-in at {at.provider}",
            made_ns=now_ns,
            signed_in_ns=signed_in_ns or now_ns,
            provider=at.provider,
            sid=at.sid,
            sign_in=at.sign_in,
            session=session,
        )
        await self.credentials.write("token", family, note)
        command = cmd.IssueToken(
            id=self._gate.new_id(),
            token=family,
            principal=principal,
            kind="refresh",
            expires_ns=now_ns + REFRESH_LIFE_NS,
        )
        await self._send_or_erase(command, "token", family)
        return CliSignIn(access, refresh, session)

    async def refresh(self, text: str, address: str = "") -> CliSignIn:
        """Return the next session and refresh token of a sign-in. Raise HttpError (400) for a token that is not in force. One
        that was used before is in two hands, so its whole family ends.
        """
        row = await self.credentials.family(family_digest(text)) if check(text) == "r" else None
        note = await self.credentials.note("token", row.id) if row and row.id in self._views.access.tokens else None
        if row is None or note is None:
            self.note_refused_token("refresh_token", address, row.principal if row else "")
            raise invalid_grant()
        following, access = (
            rotated(text, secrets.token_bytes(RANDOM_BYTES)),
            make("p", secrets.token_bytes(RANDOM_BYTES)),
        )
        if not await self.credentials.rotate(row.id, digest(text), structs.replace(note, digest=digest(following))):
            await self.end_family(row.id)
            self.note_refused_token("refresh_token", address, row.principal)
            raise invalid_grant()
        await self.end_session(note.session, "replaced")
        at = SignInAt(note.provider, sid=note.sid, sign_in=note.sign_in)
        session, _ = await self.open_session(
            row.principal, at, life_ns=ACCESS_LIFE_NS, text=access, signed_in_ns=note.signed_in_ns
        )
        newest = structs.replace(note, digest=digest(following), session=session)
        if not await self.credentials.rotate(row.id, digest(following), newest):
            await self.end_session(session, "replaced")
            raise invalid_grant()
        return CliSignIn(access, following, session)

    async def end_family(self, family: str, reason: EndReason = "revoked") -> None:
        """End a family of refresh tokens with the session that the newest has opened."""
        note = await self.credentials.note("token", family)
        if family in self._views.access.tokens:
            await self.revoke_token(family)
        if note is not None and note.session:
            await self.end_session(note.session, reason)

    # ------------------------------------------------------------------------------- tokens

    async def issue_token(
        self,
        principal: str,
        kind: TokenKind,
        name: str,
        expires_ns: int,
        *,
        verbs: tuple[Verb, ...] = (),
        scopes: tuple[str, ...] = (),
        head: RequestHead | None = None,
    ) -> tuple[str, str]:
        """Return (id, text) of a new token. `head`: of the request for it; None: a sign-in or the set-up makes it. Raise HttpError."""
        token, text = new_id("t"), make(_LETTERS[kind], secrets.token_bytes(RANDOM_BYTES))
        note = CredentialNote(principal=principal, digest=digest(text), name=name, made_ns=self._clock())
        await self.credentials.write("token", token, note)
        command = cmd.IssueToken(
            id=self._gate.new_id(head.caller.principal if head else ""),
            user=head.user if head else "",
            authority=head.authority if head else None,
            token=token,
            principal=principal,
            kind=kind,
            expires_ns=expires_ns,
            verbs=verbs,
            scopes=scopes,
        )
        await self._send_or_erase(command, "token", token)
        return token, text

    async def revoke_token(self, token: str, head: RequestHead | None = None) -> None:
        """End a token. Raise HttpError (404) for one that is not in force, or is not the sender's."""
        command = cmd.RevokeToken(
            id=self._gate.new_id(head.caller.principal if head else ""),
            user=head.user if head else "",
            authority=head.authority if head else None,
            token=token,
        )
        await self.send(command)
        await self.credentials.erase("token", token)

    # ------------------------------------------------------------------------------- links

    async def make_link(self, principal: str, credential: str) -> str:
        """Return the code of a sign-in link, which opens one session within LINK_LIFE_NS, while the credential that made it is in force."""
        code = secrets.token_urlsafe(32)
        link = SignInCode(principal, self._clock() + LINK_LIFE_NS, credential)
        await self.credentials.add_link(digest(code), link)
        return code

    async def take_link(self, code: str) -> str:
        """Return the principal of a link, which is used up. Raise HttpError (403) for a code that is none (any more)."""
        link, access = await self.credentials.take_link(digest(code)), self._views.access
        if link is None or (link.credential not in access.sessions and link.credential not in access.tokens):
            raise HttpError(403, "bad_link", "this sign-in link was used, has expired, or never was one")
        return link.principal

    # ------------------------------------------------------------------------------- the set-up

    async def make_owner(self, login: str) -> str:
        """Return a token of the cluster's owner, who is made an admin if there is none. Raise HttpError.

        For who reaches the bus alone: these commands are nobody's. Repeated after a crash it continues.
        """
        access = self._views.access
        principal = await self._owner(login)
        if principal not in access.kinds:
            await self.send(cmd.AdmitPrincipal(id=self._gate.new_id(), principal=principal, first=True))
        admins = access.access.admins()
        if principal not in admins and not [each for each in admins if await self.people.find(each)]:
            # There is none, or the log was restored without the people: none of them can sign in.
            entry = cmd.RoleEntry(subject=principal, role="admin", scope="cluster")
            await self.send(cmd.GrantRole(id=self._gate.new_id(), grant=entry))
        elif principal not in admins:
            raise HttpError(409, "has_owner", f"the cluster has admins, and {login} is none of them")
        expires_ns = self._clock() + OWNER_LIFE_NS - HOUR_NS
        return (await self.issue_token(principal, "owner", "file of the owner", expires_ns))[1]

    async def _owner(self, login: str) -> str:
        """Return the principal that the set-up has made, or make it. A person of a provider or directory who has the name already is not
        the owner, whatever their name is: the owner then has a number.
        """
        for name in _numbered(login):
            principal = await self.people.claimed(login_key(name))
            if not principal:
                fresh = new_id("p")
                await self.people.write(fresh, self._row(NewPerson(name, source=SET_UP), login=name))
                principal = await self.people.claim(login_key(name), fresh)
                if principal != fresh:
                    await self.people.erase(fresh)
            row = await self.people.find(principal)
            if row is not None and row.source == SET_UP:
                return principal
        raise HttpError(409, "has_owner", f"the names {login} to {login}-{LOGINS_TRIED} belong to others")

    # ------------------------------------------------------------------------------- commands

    async def catch_up(self) -> None:
        """Wait until the views have all that is in the log now, so that what another gateway has changed before counts. Raise HttpError
        (503) where they are late; Unavailable.
        """
        end = (await self._bus.state(subjects.LOG)).last
        try:
            async with asyncio.timeout(CATCH_UP_S):
                while self._views.sequence < end:  # noqa: ASYNC110 -- the views change by themselves, and most often are at the end
                    await asyncio.sleep(CATCH_UP_LOOK_S)
        except TimeoutError:
            detail = f"this gateway is at sequence {self._views.sequence} of {end}"
            raise HttpError(503, "behind", detail, retry_after_s=2) from None

    async def apply_roles(
        self, source: str, scope: str, grants: tuple[cmd.RoleEntry, ...], head: RequestHead | None = None
    ) -> None:
        """Let these be all grants of a source below a scope. `head`: of the request that states them; None: it follows from
        something else, such as the end of a queue. Raise HttpError.
        """
        command = cmd.ApplyRoles(
            id=self._gate.new_id(head.caller.principal if head else ""),
            user=head.user if head else "",
            authority=head.authority if head else None,
            source=source,
            scope=scope,
            grants=grants,
        )
        await self.send(command)

    def new_command_id(self, head: RequestHead | None) -> str:
        """Return a command id that no other command has, marked as the sender's. `head`: None for the gateway itself."""
        return self._gate.new_id(head.caller.principal if head else "")

    def command_id(self, head: RequestHead, *content: str) -> str:
        """Return the id of a request's command, the same one under the same Idempotency-Key. Raise HttpError (409)."""
        return self._waiter.command_id(self._gate, head, *content)

    async def send(self, command: cmd.CommandBase) -> None:
        """Send a command and wait until the views have its outcome. Raise HttpError, 503 where it is not decided in time."""
        try:
            await self._waiter.carry_out(self._gate, command)
        except HttpError as refused:  # the access service knows people by their ids alone
            names = {each: await self.people.name_of(each) for each in _ID.findall(refused.detail)}
            refused.detail = _ID.sub(lambda found: names[found[0]], refused.detail)
            raise
        except UndecidedCommand:
            detail = "the access service has not decided in time; it may still do so"
            raise HttpError(503, "undecided", detail, retry_after_s=2, instance=f"/v1/commands/{command.id}") from None

    async def _send_or_erase(self, command: cmd.CommandBase, kind: str, item: str) -> None:
        try:
            await self.send(command)
        except HttpError as refused:
            if refused.status < 500:  # else it may still be decided; `upkeep.py` looks at it later
                await self.credentials.erase("token" if kind == "token" else "session", item)
            raise


def _numbered(login: str) -> list[str]:
    """Return the login names that are tried for one: ann, ann-2 to ann-9."""
    return [login, *(f"{login[: TOKEN_CHARS_MAX - 2]}-{number}" for number in range(2, LOGINS_TRIED + 1))]


def suspended() -> HttpError:
    """Return the 403 of a sign-in of a suspended principal."""
    return HttpError(403, "suspended", "this principal is suspended", hint="an admin of the cluster can admit it again")


def invalid_grant() -> HttpError:
    """Return the 400 of a refresh token that is not in force, for whatever reason."""
    return HttpError(400, "invalid_grant", "this refresh token is not in force", hint="fairlead login")
