"""A password that an admin sets leaves a trace for its person."""

from typing import Any

from tests.gateway.access.accounts_world import AccountsWorld


async def test_an_admin_who_sets_a_password_is_in_the_persons_record() -> None:
    """With it the admin could sign in as the person, whose record says so to them."""
    async with AccountsWorld() as world:
        ann, adam = await world.person("ann", ""), await world.person("adam", "", admin="cluster")
        _, text = await world.session(adam)
        await world.ask("POST", f"/v1/people/{ann}:password", {"password": "a quite good password"}, token=text)
        await world.gateway.trail.flush()
        _, own = await world.session(ann)
        items: list[dict[str, Any]] = (await world.ask("GET", "/v1/audit/access", token=own))["items"]
        found = [each for each in items if each["kind"] == "password_set"]
        assert [(each["login"], each["owner"], each["address"]) for each in found] == [("adam", ann, "")]
