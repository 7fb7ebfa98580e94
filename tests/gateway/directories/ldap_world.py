"""Pictures of an LDAP directory, and their sync with the gateway of a world."""

from fairlead_gateway.directories.ldap import LdapPerson, LdapPicture, LdapSettings
from fairlead_gateway.directories.ldap_sync import LdapSync
from tests.gateway.access.accounts_world import AccountsWorld


def synced(world: AccountsWorld, wanted: LdapSettings) -> LdapSync:
    """The sync of a world's gateway."""
    return LdapSync(world.gateway.views, world.gateway.accounts, wanted)


PLAIN = LdapSettings(url="ldap://localhost", people_base="p", groups_base="g")


def picture(*logins: str, **groups: list[str]) -> LdapPicture:
    """A picture of people, whose ids are their logins with "id-"."""
    people = {
        f"id-{each}": LdapPerson(f"id-{each}", each, each.title(), f"{each}@corp.example", f"sub-{each}")
        for each in logins
    }
    return LdapPicture(people, {name: frozenset(f"id-{each}" for each in some) for name, some in groups.items()}, ())


def members(world: AccountsWorld, name: str, source: str = "ldap") -> set[str]:
    """Members of a group by a source."""
    return set(world.gateway.views.access.access.groups.get(f"group:{name}", {}).get(source, ()))


async def principal(world: AccountsWorld, login: str) -> str:
    """The principal with a login name."""
    return await world.gateway.accounts.people.resolve(login)
