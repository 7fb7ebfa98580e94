# Made by docs/synchronous.py of asynchronous/access.py; `make docs` writes it again.
"""Requests about access: who one is, grants and the reasons of answers, people, tokens, and the record of access."""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fairlead.client.answers import decode, query_of
from fairlead.client.synchronous.services import ServiceRequests
from fairlead_schemas.http.api import Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_schemas.http.access import RecordOfAccess
    from fairlead_schemas.http.accounts import AccessAnswer, AccessGrant, Group, NewToken, Person, TokenInfo, WhoAmI
    from fairlead_schemas.http.notifications import DeliveryTest, NewNotificationRule, NotificationRule


class AccessRequests(ServiceRequests):
    """Requests about access. People are named by login or by id."""

    def whoami(self) -> "WhoAmI":
        """Return the principal that the gateway takes the sender for, with its groups and roles."""
        from fairlead_schemas.http.accounts import WhoAmI

        return decode((self._get("/v1/whoami")).content, WhoAmI)

    def sign_out(self) -> dict[str, Any]:
        """End the session of the client's credential, with its refresh token. Raises Conflict for a token that has no session."""
        return decode((self._post("/v1/sign-out", None)).content, dict[str, Any])

    def grants(self, *, subject: str = "", scope: str = "") -> "Page[AccessGrant]":
        """Return the list of access, of one subject or in one scope and below it."""
        from fairlead_schemas.http.accounts import AccessGrant

        return self._pages("/v1/access", {"subject": subject, "scope": scope}, AccessGrant, 0)

    def grant(self, subject: str, role: str, scope: str) -> "AccessGrant":
        """Make a subject (a login, an id or "group:NAME") a role in a scope such as "queue:research/vision". Raises Denied."""
        from fairlead_schemas.http.accounts import AccessGrant

        body = {"subject": subject, "role": role, "scope": scope}
        return decode((self._post("/v1/access:grant", body)).content, AccessGrant)

    def revoke(self, subject: str, role: str, scope: str) -> "AccessGrant":
        """Take a role back that was granted by hand; the answer has the sources that still state it. Raises Denied."""
        from fairlead_schemas.http.accounts import AccessGrant

        body = {"subject": subject, "role": role, "scope": scope}
        return decode((self._post("/v1/access:revoke", body)).content, AccessGrant)

    def access_why(self, subject: str, verb: str, on: str, *, at: str = "") -> "AccessAnswer":
        """Return the reason why a subject may or may not use a verb on something ("queue:research/vision", "job:812", "cluster"), now
        or at a log sequence or an RFC 3339 time.
        """
        from fairlead_schemas.http.accounts import AccessAnswer

        query = {"subject": subject, "verb": verb, "on": on, "at": at}
        return decode((self._get("/v1/access/why", query)).content, AccessAnswer)

    def set_password(self, person: str, password: str, *, current: str = "") -> dict[str, Any]:
        """Set the password of a local user. `current` is needed for one's own. Raises Denied."""
        body = {"password": password, **query_of({"current": current})}
        return self._verb("people", quote(person, safe=""), "password", body)

    def groups(self) -> "Page[Group]":
        """Return all groups with their members."""
        from fairlead_schemas.http.accounts import Group

        return self._pages("/v1/groups", {}, Group, 0)

    def people(self) -> "Page[Person]":
        """Return all people."""
        from fairlead_schemas.http.accounts import Person

        return self._pages("/v1/people", {}, Person, 0)

    def add_person(self, login: str, *, name: str = "", email: str = "", password: str = "") -> "Person":
        """Add a person, who has no role yet. With a password, they can sign in without a provider."""
        from fairlead_schemas.http.accounts import Person

        body = query_of({"login": login, "name": name, "email": email, "password": password})
        return decode((self._post("/v1/people", body)).content, Person)

    def suspend_person(self, person: str) -> "Person":
        """Take all rights from a person and end their tokens and sessions; their grants are kept for their return."""
        from fairlead_schemas.http.accounts import Person

        return decode((self._post(f"/v1/people/{quote(person, safe='')}:suspend", {})).content, Person)

    def admit_person(self, person: str) -> "Person":
        """Let a suspended person in again."""
        from fairlead_schemas.http.accounts import Person

        return decode((self._post(f"/v1/people/{quote(person, safe='')}:admit", {})).content, Person)

    def forget_person(self, person: str) -> dict[str, Any]:
        """Erase a person's name, address and identities; the log keeps the opaque id."""
        return self._verb("people", quote(person, safe=""), "forget")

    def service_accounts(self) -> "Page[Person]":
        """Return all service accounts."""
        from fairlead_schemas.http.accounts import Person

        return self._pages("/v1/service-accounts", {}, Person, 0)

    def add_service_account(self, login: str, *, name: str = "") -> "Person":
        """Add a service account, which has no role and no token yet."""
        from fairlead_schemas.http.accounts import Person

        body = query_of({"login": login, "name": name})
        return decode((self._post("/v1/service-accounts", body)).content, Person)

    def tokens(self, *, of: str = "") -> "Page[TokenInfo]":
        """Return one's own tokens in force, or those of another principal."""
        from fairlead_schemas.http.accounts import TokenInfo

        return self._pages("/v1/tokens", {"of": of}, TokenInfo, 0)

    def make_token(
        self,
        name: str,
        *,
        for_: str = "",
        verbs: "Sequence[str]" = (),
        scopes: "Sequence[str]" = (),
        expires_in: str = "",
    ) -> "NewToken":
        """Make a token for oneself or for a service account (`for_`). It can only take rights away: `verbs` and `scopes` are the most that it
        may do (empty: all that its principal may). `expires_in` is a duration ("": the cluster's default). Raises Denied
        for a sign-in that is too old, and for a token.
        """
        from fairlead_schemas.http.accounts import NewToken

        body = {
            "name": name,
            "verbs": list(verbs),
            "scopes": list(scopes),
            **query_of({"for": for_, "expires_in": expires_in}),
        }
        return decode((self._post("/v1/tokens", body)).content, NewToken)

    def sign_in_link(self) -> str:
        """Return the path of a page that signs oneself in once, in a browser, within minutes. Raises Denied for a sign-in that is
        too old.
        """
        from fairlead_schemas.http.accounts import SignInLink

        return decode((self._post("/v1/sign-in/links", {})).content, SignInLink).path

    def revoke_token(self, token_id: str) -> dict[str, Any]:
        """Revoke a token by its id."""
        return decode((self._send("DELETE", f"/v1/tokens/{token_id}")).content or b"{}", dict[str, Any])

    def record_of_access(
        self, about: str = "me", *, start: str = "", end: str = "", limit: int = 0, next: str = ""
    ) -> "RecordOfAccess":
        """Return who signed in as a principal ("me": oneself), was denied, or looked into what belongs to it, the newest first. Times are
        RFC 3339. `limit`: entries of a page; 0: as many as the gateway gives at once. `next`: that of the page before; "": the first page.
        """
        from fairlead_schemas.http.access import RecordOfAccess

        query = {"about": about, "from": start, "to": end, "limit": limit or "", "continue": next}
        return decode((self._get("/v1/audit/access", query)).content, RecordOfAccess)

    def notifications(self, *, of: str = "") -> "Page[NotificationRule]":
        """Return one's own rules of notifications with the states of their destinations, or those of another principal."""
        from fairlead_schemas.http.notifications import NotificationRule

        return self._pages("/v1/notifications", {"of": of}, NotificationRule, 0)

    def add_notification(
        self,
        on: "Sequence[str]",
        *,
        webhook: str = "",
        mail: str | bool = False,
        name: str = "",
        scopes: "Sequence[str]" = ("mine",),
        elements: bool = False,
        after: int = 0,
    ) -> "NewNotificationRule":
        """Make a rule: events of the kinds `on` are sent to a webhook (a URL), or by mail (True: to one's own address). The answer has the
        key of a webhook's signatures, which is not shown again. `after`: of a rule about jobs alone, the log sequence of their submit. Raises Denied for a sign-in that is too old, and for a token.
        """
        from fairlead_schemas.http.notifications import NewNotificationRule

        body = {
            "on": list(on),
            "scopes": list(scopes),
            "elements": elements,
            **query_of({"webhook": webhook, "name": name}),
            **({"mail": mail} if mail else {}),
            **({"after": after} if after else {}),
        }
        return decode((self._post("/v1/notifications", body)).content, NewNotificationRule)

    def remove_notification(self, rule_id: str) -> dict[str, Any]:
        """Remove a rule by its id."""
        path = f"/v1/notifications/{quote(rule_id, safe='')}"
        return decode((self._send("DELETE", path)).content or b"{}", dict[str, Any])

    def test_notification(self, rule_id: str) -> "DeliveryTest":
        """Have a test message sent to a rule's destination. Raises Unreachable without a notifier."""
        from fairlead_schemas.http.notifications import DeliveryTest

        return decode((self._post(f"/v1/notifications/{quote(rule_id, safe='')}:test", {})).content, DeliveryTest)


class Client(AccessRequests):
    """View of one cluster for one user: all requests. Its constructor is that of `Transport`."""
