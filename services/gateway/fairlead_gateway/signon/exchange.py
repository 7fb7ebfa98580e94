"""Tokens for jobs of CI systems: a provider's job token becomes one of a service account by a rule (RFC 8693), without a stored secret."""

import secrets
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.signon.command_grants import GrantError
from fairlead_gateway.signon.jwt_check import BadToken, Expected, read_header, verify
from fairlead_gateway.signon.keys import Issuer, ProviderUnavailable
from fairlead_gateway.signon.settings import ExchangeRule
from fairlead_gateway.signon.short_lived import ShortLived
from fairlead_gateway.views.fold import Views
from fairlead_schemas.units.timestamps import SECOND_NS

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger()

LIFE_S = 3600
#: Exchanges of one job token: each step of a job may do its own, and none of them may fill the account with tokens.
EXCHANGES_MAX = 5
#: Exchanges are counted for so long; a job token that lives longer has further ones then, when its first tokens have expired.
COUNTED_S = 2 * LIFE_S


class _Exchanges(msgspec.Struct, frozen=True):
    count: int = 0


class TokenExchange:
    """The rules, and the issuers that they name. `http`: None where there is no rule. `clock`: Unix s."""

    def __init__(
        self,
        rules: Iterable[ExchangeRule],
        views: Views,
        accounts: Accounts,
        http: "httpx.AsyncClient | None",
        short_lived: ShortLived,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._rules = list(rules)
        self._issuers = {rule.issuer: Issuer(rule.issuer, http) for rule in self._rules if http is not None}
        self._views = views
        self._accounts = accounts
        self._short_lived = short_lived
        self._clock = clock

    async def exchange(self, token: str) -> str:
        """Return a token of an hour of the rule's service account. Raise GrantError, the same for every refusal."""
        try:
            rule = await self._rule_of(token)
        except (BadToken, ProviderUnavailable) as error:
            log.info("job token refused", reason=str(error)[:300])
            raise GrantError("invalid_grant") from None
        principal = await self._accounts.people.resolve(rule.service_account)
        access = self._views.access
        if access.kinds.get(principal) != "service" or not access.access.principals.get(principal, False):
            log.warning("rule of exchange without a service account", service_account=rule.service_account)
            raise GrantError("invalid_grant")
        if not await self._count(token):
            log.warning("job token exchanged too often", service_account=rule.service_account, most=EXCHANGES_MAX)
            raise GrantError("invalid_grant")
        expires_ns = int((self._clock() + LIFE_S) * SECOND_NS)
        name = f"job of {rule.subject}"[:100]
        _, text = await self._accounts.issue_token(principal, "service", name, expires_ns)
        return text

    async def _count(self, token: str) -> bool:
        """Count an exchange of a job token at all gateways together. False: it had EXCHANGES_MAX."""
        await self._short_lived.begin("exchanges", token, _Exchanges(), COUNTED_S)
        counted = await self._short_lived.change(
            "exchanges", token, _Exchanges, lambda row: _Exchanges(min(row.count + 1, EXCHANGES_MAX))
        )
        return counted is None or counted.count < EXCHANGES_MAX

    async def _rule_of(self, token: str) -> ExchangeRule:
        """Return the rule that a token fits. The issuer is tried by the rules, never taken from the token."""
        header = read_header(token)
        last: Exception = BadToken("no rule")
        for issuer in self._issuers.values():
            for audience in sorted({rule.audience for rule in self._rules if rule.issuer == issuer.issuer}):
                expected = Expected(use="job", issuer=issuer.issuer, audience=audience, now_s=self._clock())
                try:
                    claims: dict[str, Any] = verify(token, await issuer.key(header), expected)
                except (BadToken, ProviderUnavailable) as error:
                    last = error
                    continue
                for rule in self._rules:
                    if (rule.issuer, rule.audience) == (issuer.issuer, audience) and secrets.compare_digest(
                        rule.subject.encode(), claims["sub"].encode()
                    ):
                        return rule
                last = BadToken("sub: no rule has it")
        raise last
