"""All of sign-on that one gateway has, built from its setting: providers of the sign-on file, grants to commands, exchange of job tokens."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fairlead_bus.port import Bus
from fairlead_gateway.access.accounts import SESSION_LIFE_NS, Accounts
from fairlead_gateway.access.callers import Callers
from fairlead_gateway.signon.command_grants import CommandGrants
from fairlead_gateway.signon.exchange import TokenExchange
from fairlead_gateway.signon.oidc import OidcProvider
from fairlead_gateway.signon.provider_sessions import ProviderSessions
from fairlead_gateway.signon.sealing import KEY_BYTES, Sealing, read_keys
from fairlead_gateway.signon.settings import SignOnFile
from fairlead_gateway.signon.short_lived import ShortLived
from fairlead_gateway.views.fold import Views
from fairlead_schemas.units.timestamps import HOUR_NS

if TYPE_CHECKING:
    import httpx


class SignOn:
    """Parts of sign-on, wired. `file` None: without providers."""

    def __init__(self, bus: Bus, views: Views, accounts: Accounts, callers: Callers, file: SignOnFile | None) -> None:
        http = _client() if file else None
        self.public_url = file.public_url if file else ""
        # Without a provider nothing is sealed.
        sealing = Sealing(read_keys(Path(file.key_file)) if file and file.key_file else [bytes(KEY_BYTES)])
        short_lived = ShortLived(bus)
        self.providers = {
            each.name: OidcProvider(each, self.public_url, http, sealing)
            for each in (file.provider if file else [])
            if http is not None
        }
        life_ns = int(file.session.life_h * HOUR_NS) if file else SESSION_LIFE_NS
        self.sessions = ProviderSessions(self.providers, views, accounts, callers, sealing, short_lived, life_ns)
        self.grants = CommandGrants(views, accounts, short_lived)
        self.exchange = TokenExchange(file.exchange if file else [], views, accounts, http, short_lived)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names that the gateway answers to, since browsers are sent there."""
        host = urlsplit(self.public_url).hostname
        return (host,) if host else ()


def _client() -> "httpx.AsyncClient":
    """Return one client for all providers; `keys.fetch` bounds each request."""
    import httpx

    return httpx.AsyncClient(timeout=10, trust_env=False)
