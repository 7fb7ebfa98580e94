"""Look-up of people and groups in an LDAP directory: two paged searches, and groups in groups resolved here.

The obvious way asks for `member` or `memberOf` with each person, or once for each group; servers then take minutes for what two
searches do in seconds. Here people come without any of their groups, groups come with their members' names, and both are joined in
memory. Reads only, and knows nothing of accounts. Start at `look_up`. Needs the extra `ldap`.
"""

import os
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from fairlead_bus.environment_settings import BadSetting
from fairlead_gateway.directories.group_names import group_name

#: Entries in an answer to a search. Servers bound it, most at 1,000.
ENTRIES_PER_PAGE = 1_000
PEOPLE_MAX = 100_000
GROUPS_MAX = 20_000
TIMEOUT_S = 30
EVERY_S_MIN = 10.0

_AROUND_SEPARATORS = re.compile(r"\s*(?<!\\)([,=+])\s*")


class LdapSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [ldap] of the sign-on file."""

    #: ldaps://host:636, or ldap:// to this machine.
    url: str
    people_base: str
    groups_base: str
    bind_dn: str = ""
    #: File with the password, of mode 0600.
    bind_password_file: str = ""
    ca_file: str = ""
    people_filter: str = "(objectClass=inetOrgPerson)"
    groups_filter: str = "(objectClass=groupOfNames)"
    #: Attribute that never changes and is never used again: entryUUID, in Active Directory objectGUID.
    id_attribute: str = "entryUUID"
    login_attribute: str = "uid"
    name_attribute: str = "cn"
    email_attribute: str = "mail"
    group_name_attribute: str = "cn"
    member_attribute: str = "member"
    #: Provider, and the attribute with a person's subject (`sub`) there; "" for none.
    issuer: str = ""
    subject_attribute: str = ""
    every_s: float = 300.0
    #: True: people who are not found any more are suspended.
    suspend_leavers: bool = False


class LdapPerson(NamedTuple):
    """Person of the directory."""

    id: str
    login: str
    name: str
    email: str
    subject: str


class LdapPicture(NamedTuple):
    """Everybody and every group at one moment."""

    #: {id: person}
    people: dict[str, LdapPerson]
    #: {name in Fairlead: ids of its people, those of groups in it included}
    groups: dict[str, frozenset[str]]
    #: Names of groups that cannot be named, or that would be one group.
    unusable: tuple[str, ...]


class LdapFailed(Exception):
    """The directory cannot be read; nothing is changed until it can."""


def checked_ldap(found: LdapSettings, path: Path) -> LdapSettings:
    """Return the settings of a sign-on file, with the names of files as paths. Raise BadSetting, also where the extra is not installed."""
    if find_spec("ldap3") is None:
        raise BadSetting(f"{path}: ldap: ldap3 is not installed: install the gateway with the extra ldap")
    parts = urlsplit(found.url)
    if parts.scheme != "ldaps" and (parts.scheme != "ldap" or parts.hostname not in ("127.0.0.1", "::1", "localhost")):
        raise BadSetting(
            f"{path}: ldap: url: expected ldaps://HOST, found {found.url[:200]!r}: passwords would be readable"
        )
    if found.every_s < EVERY_S_MIN:
        raise BadSetting(f"{path}: ldap: every_s: expected at least {EVERY_S_MIN:g}, found {found.every_s:g}")
    if bool(found.issuer) != bool(found.subject_attribute):
        raise BadSetting(f"{path}: ldap: expected issuer and subject_attribute, or neither")
    return msgspec.structs.replace(
        found, bind_password_file=_private(path, found.bind_password_file), ca_file=_beside(path, found.ca_file)
    )


def _beside(path: Path, name: str) -> str:
    return str(path.parent / name) if name else ""


def _private(path: Path, name: str) -> str:
    file = _beside(path, name)
    try:
        mode = Path(file).stat().st_mode & 0o777 if file else 0o600
    except OSError as error:
        raise BadSetting(f"{path}: ldap: bind_password_file: {os.strerror(error.errno or 0)}: {file}") from None
    if mode & 0o077:
        raise BadSetting(f"{file}: expected mode 0600, found {mode:04o}, since it contains a password")
    return file


# ------------------------------------------------------------------------------- searches


def look_up(settings: LdapSettings) -> LdapPicture:
    """Read the whole directory. Blocks for seconds: call it in a thread. Raise LdapFailed."""
    from ldap3.core.exceptions import LDAPException  # an extra: only who uses LDAP has it

    try:
        connection = _bound(settings)
        try:
            people = dict(_people(connection, settings))
            groups = list(_groups(connection, settings))
        finally:
            connection.unbind()
    except (LDAPException, OSError) as error:
        raise LdapFailed(f"{settings.url}: {error}") from None
    if not people:
        raise LdapFailed(f"{settings.people_base}: no people match {settings.people_filter}")
    return picture_of(people, groups)


def _bound(settings: LdapSettings) -> Any:
    import ldap3

    tls = ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=settings.ca_file or None)
    server = ldap3.Server(settings.url, get_info=ldap3.NONE, tls=tls, connect_timeout=TIMEOUT_S)
    password = Path(settings.bind_password_file).read_text().strip() if settings.bind_password_file else None
    return ldap3.Connection(
        server,
        settings.bind_dn or None,
        password,
        auto_bind=True,
        raise_exceptions=True,
        receive_timeout=TIMEOUT_S,
        read_only=True,
        auto_referrals=False,
    )


def _search(
    connection: Any, base: str, wanted: str, attributes: list[str], most: int
) -> Iterator[tuple[str, Mapping[str, list[bytes]]]]:
    """Yield (distinguished name, {attribute: values}) of the entries below a base. Raise LdapFailed beyond `most`."""
    found = connection.extend.standard.paged_search(
        base, wanted, attributes=attributes, paged_size=ENTRIES_PER_PAGE, generator=True
    )
    count = 0
    for entry in found:
        if entry.get("type") != "searchResEntry":  # a referral to another server, which is not followed
            continue
        count += 1
        if count > most:
            raise LdapFailed(f"{base}: expected at most {most} entries that match {wanted}")
        yield entry["dn"], entry["raw_attributes"]
    # A server that cuts the answer at its limit is no error for the library: the rest would look as if it had left.
    if connection.result["result"] != 0:
        raise LdapFailed(f"{base}: the answer ended after {count} entries: {connection.result['description']}")


def _people(connection: Any, settings: LdapSettings) -> Iterator[tuple[str, LdapPerson]]:
    """Yield (compared name, person)."""
    s = settings
    names = [s.id_attribute, s.login_attribute, s.name_attribute, s.email_attribute, s.subject_attribute]
    wanted = [each for each in dict.fromkeys(names) if each]
    for dn, found in _search(connection, s.people_base, s.people_filter, wanted, PEOPLE_MAX):
        values = {name.lower(): each for name, each in found.items()}
        one = [_text(values.get(name.lower(), ()) if name else ()) for name in names]
        if one[0]:
            yield comparable(dn), LdapPerson(*one)


def _groups(connection: Any, settings: LdapSettings) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (compared name, name of the group, compared names of its members)."""
    wanted = [settings.group_name_attribute, settings.member_attribute]
    for dn, found in _search(connection, settings.groups_base, settings.groups_filter, wanted, GROUPS_MAX):
        values = {name.lower(): each for name, each in found.items()}
        members = values.get(wanted[1].lower(), ())
        yield comparable(dn), _text(values.get(wanted[0].lower(), ())), [comparable(_text([each])) for each in members]


def _text(values: Iterable[bytes]) -> str:
    """Return the first value as text, hex digits for what is no UTF-8, such as an objectGUID."""
    value = next(iter(values), b"")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()


def comparable(dn: str) -> str:
    """Return a distinguished name in the form in which equal ones are equal: without case, and without space at separators."""
    return _AROUND_SEPARATORS.sub(r"\1", dn.strip().lower())


# ------------------------------------------------------------------------------- groups in groups


def picture_of(people: Mapping[str, LdapPerson], groups: list[tuple[str, str, list[str]]]) -> LdapPicture:
    """Join people and groups by their compared names. Two groups whose names would become one are both left out: neither may have the
    roles of the other. Pure.
    """
    members = {dn: each for dn, _, each in groups}
    by_name: dict[str, list[str]] = {}
    for dn, name, _ in groups:
        by_name.setdefault(group_name(name), []).append(dn)
    usable = {name: dns[0] for name, dns in by_name.items() if name and len(dns) == 1}
    unusable = sorted(name for dn, name, _ in groups if usable.get(group_name(name)) != dn)
    return LdapPicture(
        people={each.id: each for each in people.values()},
        groups={name: frozenset(_within(dn, members, people)) for name, dn in usable.items()},
        unusable=tuple(unusable),
    )


def _within(top: str, members: Mapping[str, list[str]], people: Mapping[str, LdapPerson]) -> Iterator[str]:
    """Yield the ids of people in a group and in the groups within it, which may contain each other."""
    seen, open_groups = {top}, [top]
    while open_groups:
        for dn in members[open_groups.pop()]:
            if (person := people.get(dn)) is not None:
                yield person.id
            elif dn in members and dn not in seen:
                seen.add(dn)
                open_groups.append(dn)
