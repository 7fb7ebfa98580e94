"""Classes, volumes and datasets over HTTP, with the real storage and access services: who may make, see, resize, share and delete them."""

from typing import Any

import httpx

from fairlead_gateway.sources.piece_renewal import directories_of
from fairlead_gateway.views.fold import Views
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import trees
from tests.gateway.access.signed_world import SignedWorld, body_of

GROUP = trees.encode_piece(trees.TreeGroup(entries=(trees.TreeEntry(path="a.txt", size=3, data=b"abc"),)))
ROOT = trees.tree_of([trees.digest_of(GROUP)], 1, 3)
NAME = trees.name_of_tree(trees.digest_of(ROOT))


async def ready(world: SignedWorld) -> None:
    """Queues research and sales, a class `shared`, a lead and a member of research, and a person without roles."""
    await world.configure(research={}, research__vision={}, sales={})
    await world.storage(cmd.SetStorageClass, name="shared", backend="directory", user_bytes_max=8 << 30)
    await world.person("lead", queue_admin="queue:research")
    await world.person("ann", member="queue:research/vision")
    await world.person("eve")


async def made(world: SignedWorld, who: str, status: int = 200, **body: Any) -> httpx.Response:
    """Make a volume."""
    answer = await world.ask(who, "POST", "/v1/volumes", json={"quota": "1Gi", **body})
    assert answer.status_code == status, answer.text
    return answer


def fields(answer: httpx.Response) -> list[str]:
    """Fields that a problem names."""
    return [each["field"] for each in answer.json()["errors"]]


async def test_a_volume_is_seen_by_its_owner_and_readers_alone() -> None:
    """A lead makes one for the queue, a member of a queue below may not and does not see it; a person has one of their own."""
    async with SignedWorld() as world:
        await ready(world)
        volume = (await made(world, "lead", name="data", owner="queue:research")).json()
        assert (volume["owner"], volume["class"], volume["quota"], volume["quota_bytes"]) == (
            "queue:research",
            "shared",
            "counted",
            1 << 30,
        )
        assert volume["may"] == ["volume:read", "volume:write", "volume:manage"]
        below = await made(world, "lead", name="below", owner="queue:research/vision")
        assert below.json()["created_by"] == "lead"
        await made(world, "ann", 403, name="mine", owner="queue:research/vision")
        await made(world, "ann", 404, name="mine", owner="queue:research")  # a queue that she does not see
        await made(world, "ann", 403, name="mine", owner="project:llm")
        await made(world, "ann", name="mine")
        seen = {who: await world.get(who, "/v1/volumes") for who in ("lead", "ann")}
        assert [each["name"] for each in seen["lead"]["items"]] == ["below", "data"]
        assert [(each["name"], each["may"]) for each in seen["ann"]["items"]] == [
            ("below", ["volume:read", "volume:write"]),
            ("mine", ["volume:read", "volume:write", "volume:manage"]),
        ]
        assert (await world.get("eve", "/v1/volumes"))["items"] == []


async def test_a_hidden_volume_is_answered_like_one_that_is_not_there() -> None:
    """By every route, by grants and by reasons of access."""
    async with SignedWorld() as world:
        await ready(world)
        await made(world, "lead", name="data", owner="queue:research")
        for method, path, body in (
            ("GET", "/v1/volumes/{}", None),
            ("PATCH", "/v1/volumes/{}", {"quota": "2Gi"}),
            ("DELETE", "/v1/volumes/{}", None),
            ("GET", "/v1/access/why?verb=volume:read&on=volume:{}", None),
            ("POST", "/v1/access:grant", {"subject": "eve", "role": "viewer", "scope": "volume:{}"}),
        ):
            answers = []
            for name in ("data", "none"):
                sent = {key: value.format(name) for key, value in body.items()} if body else None
                answer = await world.ask("eve", method, path.format(name), json=sent)
                answers.append((answer.status_code, answer.text.replace(name, "X")))
            found = [body_of(httpx.Response(status, text=text)) for status, text in answers]
            assert found[0] == found[1] and found[0][0] == 404, (method, path, found)


async def test_a_volume_is_shared_by_its_owner_and_roles_at_it_end_with_it() -> None:
    """Reading is no writing; nobody shares what they do not manage; a new volume of the name is nobody's but its owner's."""
    async with SignedWorld() as world:
        await ready(world)
        await made(world, "ann", name="mine")
        grant = {"subject": "eve", "role": "viewer", "scope": "volume:mine"}
        assert (await world.ask("lead", "POST", "/v1/access:grant", json=grant)).status_code == 404
        answer = await world.ask("ann", "POST", "/v1/access:grant", json=grant)
        assert answer.status_code == 200, answer.text
        assert (await world.get("eve", "/v1/volumes/mine"))["may"] == ["volume:read"]
        assert (await world.ask("eve", "PATCH", "/v1/volumes/mine", json={"quota": "2Gi"})).status_code == 403
        more = {"subject": "lead", "role": "viewer", "scope": "volume:mine"}
        assert (await world.ask("eve", "POST", "/v1/access:grant", json=more)).status_code == 403
        assert (await world.ask("ann", "DELETE", "/v1/volumes/mine")).json()["name"] == "mine"
        await made(world, "ann", name="mine")
        assert (await world.ask("eve", "GET", "/v1/volumes/mine")).status_code == 404
        assert (await world.get("owner", "/v1/access?scope=volume:mine"))["items"] == []


async def test_wrong_bodies_name_their_fields() -> None:
    """What the gateway refuses and what the storage service refuses."""
    async with SignedWorld() as world:
        await ready(world)
        assert fields(await made(world, "ann", 422, name="Data")) == ["name"]
        assert fields(await made(world, "ann", 422, name="data", quota="much")) == ["quota"]
        assert fields(await made(world, "ann", 422, name="data", quota="9Gi")) == ["quota"]
        assert fields(await made(world, "ann", 422, name="data", owner="ann")) == ["owner"]
        assert fields(await made(world, "ann", 422, name="data", **{"class": "gold"})) == ["class"]
        await made(world, "ann", name="data")
        assert fields(await made(world, "lead", 409, name="data")) == ["name"]
        answer = await world.ask("owner", "PUT", "/v1/storage-classes/shared", json={"backend": "nfs"})
        assert answer.status_code == 409 and "cannot change" in answer.json()["detail"]
        answer = await world.ask("lead", "PUT", "/v1/storage-classes/more", json={"backend": "nfs"})
        assert answer.status_code == 403
        answer = await world.ask("owner", "PUT", "/v1/storage-classes/more", json={"backend": "tape"})
        assert (answer.status_code, fields(answer)) == (422, ["backend"])
        assert (await world.ask("owner", "DELETE", "/v1/storage-classes/shared")).status_code == 409
        answer = await world.ask(
            "owner", "PUT", "/v1/storage-classes/fast", json={"backend": "ext4-image", "volumeMax": "1Ti"}
        )
        assert (answer.json()["quota"], answer.json()["volume_bytes_max"]) == ("enforced", 1 << 40)
        assert fields(await made(world, "ann", 422, name="other")) == ["class"]  # two classes: which?


async def test_a_datasets_pieces_are_read_by_its_readers_alone() -> None:
    """Added from a directory that is there, once; kept while it is not retired."""
    async with SignedWorld() as world:
        await ready(world)
        body = {"dataset": "set@1", "digest": NAME, "owner": "queue:research/vision"}
        answer = await world.ask("lead", "POST", "/v1/datasets", json=body)
        assert (answer.status_code, fields(answer)) == (422, ["digest"])
        for piece in (GROUP, ROOT):
            await world.gateway.pieces.put(piece)
        answer = await world.ask(
            "lead", "POST", "/v1/datasets", json={**body, "digest": trees.name_of_tree(trees.digest_of(GROUP))}
        )
        assert (answer.status_code, fields(answer)) == (422, ["digest"])
        answer = await world.ask("lead", "POST", "/v1/datasets", json=body)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["id"], found["size_bytes"], found["files"], found["retired"]) == ("set@1", 3, 1, False)
        assert fields(await world.ask("lead", "POST", "/v1/datasets", json=body)) == ["dataset"]
        path = f"/v1/datasets/set@1/pieces/{trees.digest_of(ROOT).hex()}"
        assert (await world.ask("ann", "GET", path)).content == ROOT
        hidden = await world.ask("eve", "GET", path)
        assert hidden.status_code == 404 and "there is no dataset" in hidden.json()["detail"]
        assert (await world.ask("ann", "GET", f"/v1/datasets/set@1/pieces/{64 * '0'}")).status_code == 404
        assert (await world.ask("ann", "GET", "/v1/datasets/set@1/pieces/xyz")).status_code == 422
        assert (await world.ask("ann", "POST", "/v1/datasets/set@1:retire")).status_code == 403
        views = world.gateway.views
        assert trees.digest_of(ROOT) in directories_of(views)
        assert (await world.ask("lead", "POST", "/v1/datasets/set@1:retire")).json()["retired"]
        assert directories_of(views) == []
        assert [each["id"] for each in (await world.get("ann", "/v1/datasets"))["items"]] == ["set@1"]


async def test_a_removed_queue_leaves_its_volumes_to_the_cluster_also_in_a_snapshot() -> None:
    """A new queue of the name has none of them; the views say the same after a restart."""
    async with SignedWorld() as world:
        await ready(world)
        await made(world, "owner", name="sold", owner="queue:sales")
        await world.person("seller", queue_admin="queue:sales")
        assert (await world.ask("owner", "DELETE", "/v1/queues/sales")).status_code == 200
        await world.configure(sales={})
        await world.grant("seller", "queue-admin", "queue:sales")
        assert (await world.ask("seller", "GET", "/v1/volumes/sold")).status_code == 404
        assert (await world.get("owner", "/v1/volumes/sold"))["owner"] == "cluster"
        restored = Views.restore(world.gateway.views.snapshot())
        assert restored is not None
        assert restored.storage.rows() == world.gateway.views.storage.rows()
        assert restored.storage.target("sold") == world.gateway.views.storage.target("sold")


async def test_volumes_of_the_past_are_shown_by_the_rights_of_now() -> None:
    """A volume that is gone is judged as it was, by the roles that its readers have now; by name it is as it was then."""
    async with SignedWorld() as world:
        await ready(world)
        await made(world, "lead", name="data", owner="queue:research")
        await made(world, "ann", name="mine")
        then = world.gateway.views.sequence
        resized = await world.ask("lead", "PATCH", "/v1/volumes/data", json={"quota": "2Gi"})
        assert resized.status_code == 200
        assert (await world.get("lead", f"/v1/volumes/data?at={then}"))["quota_bytes"] == 1 << 30
        assert (await world.get("lead", "/v1/volumes/data"))["quota_bytes"] == 2 << 30
        assert (await world.ask("lead", "DELETE", "/v1/volumes/data")).status_code == 200
        seen = {who: await world.get(who, f"/v1/volumes?at={then}") for who in ("lead", "ann", "eve")}
        names = {who: [each["name"] for each in page["items"]] for who, page in seen.items()}
        assert names == {"lead": ["data"], "ann": ["mine"], "eve": []}
        assert seen["lead"]["sequence"] == then
        await world.revoke("lead", "queue-admin", "queue:research")
        assert (await world.get("lead", f"/v1/volumes?at={then}"))["items"] == []
        assert (await world.ask("lead", "GET", f"/v1/volumes/data?at={then}")).status_code == 404
