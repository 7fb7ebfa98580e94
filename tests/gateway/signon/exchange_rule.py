"""A gateway with one rule of exchange, and the issuer of the job tokens that it takes."""

from collections.abc import Awaitable, Callable
from typing import Any

from fairlead_gateway.signon.exchange import TokenExchange
from fairlead_gateway.signon.settings import ExchangeRule
from fairlead_gateway.signon.short_lived import ShortLived
from tests.gateway.access.accounts_world import AccountsWorld
from tests.kit.token_issuer import ISSUER, NOW_S, TokenIssuer

EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
RULE = ExchangeRule(
    issuer=ISSUER, audience="fairlead-ci", subject="repo:lab/train:ref:refs/heads/main", service_account="ci"
)


async def with_rule(world: AccountsWorld) -> tuple[TokenIssuer, Callable[..., Awaitable[dict[str, Any]]]]:
    """Let the world have one rule; its issuer, and a function that exchanges a token."""
    played = TokenIssuer()
    world.gateway.sign_on.exchange = TokenExchange(
        [RULE], world.gateway.views, world.gateway.accounts, played.client(), ShortLived(world.bus), lambda: NOW_S
    )

    async def exchanged(token: str) -> dict[str, Any]:
        form = {
            "grant_type": EXCHANGE_GRANT,
            "subject_token": token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        }
        return (await world.http.post("/v1/token", data=form)).json()

    return played, exchanged
