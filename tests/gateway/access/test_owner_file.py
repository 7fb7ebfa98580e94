"""File of the owner: made once, readable by no person else, made again when its token is gone."""

from pathlib import Path

from fairlead_gateway.access.owner_file import OwnerFile
from fairlead_gateway.errors import HttpError
from tests.gateway.access.accounts_world import AccountsWorld


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
