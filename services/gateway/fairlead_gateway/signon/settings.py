"""The sign-on file: providers, who is admitted, session times, exchange of job tokens, directories. Read once, at start.

A setting that is not known refuses the start with the nearest known one: a misspelt restriction would admit everybody. Who is admitted has
no default for the same reason.
"""

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from fairlead_bus.environment_settings import BadSetting
from fairlead_gateway.directories.ldap import LdapSettings, checked_ldap
from fairlead_gateway.signon.keys import is_safe_url
from fairlead_gateway.signon.sealing import require_private
from fairlead_schemas.units.ids import is_token

#: Names of sources of people and sessions that are no providers.
RESERVED = ("local", "up", "link", "device", "person", "cli")
PROVIDERS_MAX = 16
RULES_MAX = 200
#: Settings of other programs that people try, and what to write instead.
ELSEWHERE = {
    "allowed_groups": "admit = [groups]",
    "allow_all": 'admit = "everyone"',
    "allowed_users": 'admit = "everyone", and roles for these people',
    "allowed_domains": "admit = [groups]: an e-mail address says nothing about who somebody is",
    "hosted_domain": "admit = [groups]: an e-mail address says nothing about who somebody is",
    "default_role": "a role for group:NAME: a new person has none",
    "admin_groups": "a role for group:NAME",
    "username_claim": "nothing: iss and sub are the person",
    "redirect_uri": "public_url",
    "skip_verify": "nothing: issuers are verified",
}


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One identity provider. `admit`: "everyone", or the groups of which one is needed; [] admits no one."""

    name: str
    issuer: str
    client_id: str
    admit: Literal["everyone"] | list[str]
    client_secret: str = ""
    client_secret_file: str = ""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    groups_claim: str = ""
    #: Before each group of this provider, so that groups of two providers stay apart.
    group_prefix: str = ""


class Session(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times of sessions."""

    life_h: float = 12.0


class ExchangeRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Job tokens that may become a token of a service account. All three claims are compared as they are, without patterns."""

    issuer: str
    audience: str
    subject: str
    service_account: str


class Scim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Directory that sends people over SCIM. `issuer`: provider whose subjects (`sub`) it sends as `externalId`; "": none."""

    issuer: str = ""


class SignOnFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. `public_url` and `key_file` (of `sealing.read_keys`) may be missing where there is no provider."""

    public_url: str = ""
    key_file: str = ""
    provider: list[Provider] = []
    session: Session = Session()
    exchange: list[ExchangeRule] = []
    scim: Scim = Scim()
    ldap: LdapSettings | None = None


def sign_on_file(setting: str) -> SignOnFile | None:
    """Return the file that FAIRLEAD_SIGN_ON names; None where it names none. Raise BadSetting."""
    return None if setting in ("", "off", "local") else read_sign_on_file(Path(setting))


def read_sign_on_file(path: Path) -> SignOnFile:
    """Return the settings of a sign-on file, secrets included. Raise BadSetting."""
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"{path}: cannot be read as TOML: {error}") from None
    _check_names(document, SignOnFile, str(path))
    for table, kind in (("provider", Provider), ("exchange", ExchangeRule)):
        for each in _tables(document.get(table, [])):
            _check_names(each, kind, f"{path}: {table}")
    for table, kind in (("session", Session), ("scim", Scim), ("ldap", LdapSettings)):
        for each in _tables([document.get(table, {})]):
            _check_names(each, kind, f"{path}: {table}")
    try:
        found = msgspec.convert(document, SignOnFile)
    except msgspec.ValidationError as error:
        hint = '; write admit = "everyone", or the list of groups' if "`admit`" in str(error) else ""
        raise BadSetting(f"{path}: {error}{hint}") from None
    if any(provider.client_secret for provider in found.provider):
        require_private(path)
    providers = [_checked(provider, path) for provider in found.provider]
    _check_whole(found, path)
    return msgspec.structs.replace(
        found,
        public_url=found.public_url.rstrip("/"),
        key_file=str(path.parent / found.key_file) if found.key_file else "",
        provider=providers,
        ldap=checked_ldap(found.ldap, path) if found.ldap is not None else None,
    )


def _tables(found: Any) -> Iterable[Mapping[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _check_names(table: Mapping[str, Any], kind: type[msgspec.Struct], where: str) -> None:
    known = kind.__struct_fields__
    for name in table:
        if name in known:
            continue
        near = ELSEWHERE.get(name) or next(iter(difflib.get_close_matches(name, known, 1, 0.5)), "")
        instead = f"; use {near}" if near else f"; known: {', '.join(known)}"
        raise BadSetting(f'{where}: there is no setting "{name}"{instead}')


def _checked(provider: Provider, path: Path) -> Provider:
    """Return a provider with its secret read. Raise BadSetting."""
    where = f'{path}: provider "{provider.name[:64]}"'
    if not is_token(provider.name) or provider.name in RESERVED:
        raise BadSetting(f"{where}: name: expected 1 to 63 of a-z 0-9 _ -, and none of {', '.join(RESERVED)}")
    if not is_safe_url(provider.issuer) or "?" in provider.issuer:
        raise BadSetting(f"{where}: issuer: expected an https address, found {provider.issuer[:200]!r}")
    if not provider.client_id or "openid" not in provider.scopes:
        raise BadSetting(f'{where}: expected client_id, and "openid" among scopes')
    if bool(provider.client_secret) == bool(provider.client_secret_file):
        raise BadSetting(f"{where}: expected either client_secret or client_secret_file")
    if isinstance(provider.admit, list) and provider.admit and not provider.groups_claim:
        raise BadSetting(f"{where}: admit lists groups, so groups_claim must name the claim that has them")
    if provider.group_prefix and not is_token(provider.group_prefix):
        raise BadSetting(f"{where}: group_prefix: expected a-z 0-9 _ -")
    if not provider.client_secret_file:
        return provider
    file = path.parent / provider.client_secret_file
    try:
        require_private(file)
        return msgspec.structs.replace(provider, client_secret=file.read_text().strip())
    except OSError as error:
        raise BadSetting(f"{where}: client_secret_file: {os.strerror(error.errno or 0)}: {file}") from None


def _check_whole(found: SignOnFile, path: Path) -> None:
    url = found.public_url
    if found.provider and not (url and found.key_file):
        raise BadSetting(f"{path}: expected public_url and key_file, since there is a provider")
    if url and (not is_safe_url(url) or url.rstrip("/").count("/") != 2 or "?" in url):
        raise BadSetting(f"{path}: public_url: expected https://HOST without a path, found {url[:200]!r}")
    if len(found.provider) > PROVIDERS_MAX or len(found.exchange) > RULES_MAX:
        raise BadSetting(f"{path}: expected at most {PROVIDERS_MAX} providers and {RULES_MAX} rules of exchange")
    names = [provider.name for provider in found.provider]
    if len(set(names)) < len(names):
        raise BadSetting(f"{path}: provider: expected each name once, found {', '.join(names)}")
    if not 0.1 <= found.session.life_h <= 24:
        raise BadSetting(f"{path}: session: life_h: expected 0.1 to 24, found {found.session.life_h:g}")
    _check_prefixes(found, path)
    if found.scim.issuer and not is_safe_url(found.scim.issuer):
        raise BadSetting(f"{path}: scim: issuer: expected an https address, found {found.scim.issuer[:200]!r}")
    clients = {(provider.issuer, provider.client_id) for provider in found.provider}
    for rule in found.exchange:
        if not is_safe_url(rule.issuer) or not rule.audience or not rule.subject:
            raise BadSetting(f"{path}: exchange: expected an https issuer, an audience and a subject")
        if (rule.issuer, rule.audience) in clients:
            raise BadSetting(f"{path}: exchange: audience {rule.audience!r}: a sign-in's ID token would be a job token")


def _check_prefixes(found: SignOnFile, path: Path) -> None:
    """Raise BadSetting where a group of one provider could have the name of another's."""
    prefixes = [(each.group_prefix, each.name) for each in found.provider if each.groups_claim]
    for prefix, name in prefixes:
        for other, other_name in prefixes:
            if name != other_name and other.startswith(prefix):
                raise BadSetting(
                    f"{path}: group_prefix: groups of {name} and {other_name} could have equal names; give each its own "
                    f'prefix, such as "{name}-"'
                )
