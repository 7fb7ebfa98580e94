"""The setting FAIRLEAD_SIGN_ON: off, tokens and local users, or a sign-on file, and settings that are gone. The file itself is read elsewhere."""

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

import structlog

from fairlead_bus.environment_settings import BadSetting

log = structlog.get_logger()

SETTING = "FAIRLEAD_SIGN_ON"
_FILE = f"of the sign-on file, whose path is {SETTING} (docs/how-to/directories.md)"
#: Settings that are gone, and what to do instead.
REMOVED = {
    "FAIRLEAD_IDENTITIES": f"removed: set {SETTING}=local, make a token for each of its people, and grant them roles "
    "(docs/concepts/rights.md)",
    "FAIRLEAD_LDAP": f"moved: write its table [ldap] into that {_FILE}",
    "FAIRLEAD_SCIM_ISSUER": f"moved: write it as issuer into the table [scim] {_FILE}",
}


def sign_on_setting(env: Mapping[str, str]) -> str:
    """Return the setting: "" (unset), "off", "local", or the path of a sign-on file. Raise BadSetting."""
    for name, instead in REMOVED.items():
        if env.get(name):
            raise BadSetting(f"{name}: {instead}")
    found = env.get(SETTING, "").strip()
    if found in ("", "off", "local"):
        return found
    if not Path(found).is_file():
        raise BadSetting(f'{SETTING}: expected "off", "local" or the path of a sign-on file, found "{found[:200]}"')
    return found


def check_listener(sign_on: str, host: str) -> None:
    """Raise BadSetting for a gateway that would let everybody on the network do everything without this having been chosen."""
    if sign_on not in ("", "off") or is_loopback(host):
        return
    if not sign_on:
        raise BadSetting(
            f"FAIRLEAD_HTTP_HOST: {host} can be reached from other machines, and without sign-on everybody there may do everything: "
            f"set {SETTING}=local or a sign-on file, listen on 127.0.0.1, or set {SETTING}=off to allow it"
        )
    log.warning("everybody who reaches this address may do everything", host=host, sign_on="off")


def is_loopback(host: str) -> bool:
    """Return True for an address or name that only this machine reaches."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
