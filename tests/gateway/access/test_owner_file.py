"""File of the owner: made once, readable by no person else, made again when its token is gone."""

from pathlib import Path
from typing import Self

from fairlead_access.core import AccessCore
from fairlead_bus.input_source import CommandSource
from fairlead_bus.service import Service
from fairlead_gateway.access.accounts import NewPerson
from fairlead_gateway.access.owner_file import OwnerFile
from fairlead_gateway.errors import HttpError
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.gatehouse import Gatehouse


async def test_the_file_has_a_token_that_may_do_everything_and_make_tokens(tmp_path: Path) -> None:
    """Mode 0600, one token; a second start leaves it as it is, and a deleted or revoked one is made again for the same owner."""
    async with AccountsWorld() as world:
        gateway, path = world.gateway, tmp_path / "owner.token"
        file = OwnerFile(path, gateway.views, gateway.accounts, lambda: True)
        await file.run()
        assert path.stat().st_mode & 0o777 == 0o600
        text = path.read_text().strip()
        who = await world.ask("GET", "/v1/whoami", token=text)
        assert [(each["role"], each["scope"]) for each in who["roles"]] == [("admin", "cluster")]
        await world.ask("POST", "/v1/tokens", {"name": "ci"}, token=text, status=201)
        await file.run()
        assert path.read_text().strip() == text
        await world.ask("DELETE", f"/v1/tokens/{who['via'].partition(':')[2]}")
        await file.run()
        again = path.read_text().strip()
        assert again != text
        assert (await world.ask("GET", "/v1/whoami", token=again))["principal"] == who["principal"]


async def test_an_owner_who_is_no_admin_any_more_is_not_made_one_again(tmp_path: Path) -> None:
    """Where the cluster has another admin, a deleted file does not bring the owner's rights back."""
    async with AccountsWorld() as world:
        await world.person("ann", admin="cluster")
        await world.ask("POST", "/v1/access:revoke", {"subject": "owner", "role": "admin", "scope": "cluster"})
        gateway, path = world.gateway, tmp_path / "owner.token"
        try:
            await OwnerFile(path, gateway.views, gateway.accounts, lambda: True).ensure()
        except HttpError as refused:
            assert refused.code == "has_owner"  # noqa: PT017 -- the file is looked at, too
        assert not path.exists()


async def test_a_file_that_others_could_read_gets_another_token(tmp_path: Path) -> None:
    """Who read it meanwhile has nothing of it."""
    async with AccountsWorld() as world:
        gateway, path = world.gateway, tmp_path / "owner.token"
        file = OwnerFile(path, gateway.views, gateway.accounts, lambda: True)
        await file.ensure()
        text = path.read_text().strip()
        path.chmod(0o644)
        await file.ensure()
        assert path.stat().st_mode & 0o777 == 0o600 and path.read_text().strip() != text
        await world.ask("GET", "/v1/whoami", token=text, status=401)


class UnownedWorld(Gatehouse):
    """A cluster with sign-on that no set-up has given an owner yet."""

    def __init__(self) -> None:
        super().__init__(sign_on="local")

    async def __aenter__(self) -> Self:
        self.spawn(Service(self.hub.connect(), AccessCore, writer="access", sources=[CommandSource("access")]))
        return await super().__aenter__()


async def test_a_person_who_is_called_owner_does_not_become_it(tmp_path: Path) -> None:
    """People can sign in at a provider before the file is made, and choose their names there."""
    async with UnownedWorld() as world:
        accounts, access = world.gateway.accounts, world.gateway.views.access
        evil = await accounts.admit_person(("https://idp.example", "evil"), NewPerson("owner", source="corp"))
        for _ in range(2):
            await accounts.make_owner("owner")
            admins = access.access.admins()
            assert evil not in admins and [await accounts.people.name_of(each) for each in admins] == ["owner-2"]
        assert not access.tokens_of.get(evil)
