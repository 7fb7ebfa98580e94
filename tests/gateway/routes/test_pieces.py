"""Pieces of directories over HTTP: sent under their digest by whoever may submit, and named by jobs."""

from typing import Any

import httpx
import pytest

from fairlead_bus.pieces import PieceStore
from fairlead_bus.port import StreamFull
from fairlead_gateway.sources.piece_renewal import PieceRenewal, directories_of
from fairlead_schemas.wire import trees
from fairlead_schemas.wire.trees import TreeEntry, TreeGroup
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.gatehouse import Gatehouse
from tests.gateway.world import GatewayWorld

DATA = b"print('hello')\n"
DIGEST = trees.digest_of(DATA).hex()
OCTETS = {"content-type": "application/octet-stream"}


async def put(house: Gatehouse, data: bytes, digest: str = "", **headers: str) -> httpx.Response:
    """Send a piece."""
    path = f"/v1/pieces/{digest or trees.digest_of(data).hex()}"
    return await house.http.put(path, content=data, headers={**OCTETS, **headers})


async def ask(house: Gatehouse, digests: Any) -> httpx.Response:
    """Ask which pieces are missing."""
    return await house.http.post("/v1/pieces:missing", json={"digests": digests})


async def send_tree(house: Gatehouse) -> str:
    """Send a directory of one file; its name."""
    group = trees.encode_piece(TreeGroup(entries=(TreeEntry(path="train.py", size=len(DATA), data=DATA),)))
    root = trees.tree_of([trees.digest_of(group)], 1, len(DATA))
    for piece in (group, root):
        assert (await put(house, piece)).status_code == 200
    return trees.name_of_tree(trees.digest_of(root))


async def test_a_piece_is_missing_until_it_was_sent() -> None:
    """And is sent once: it is known by what it holds."""
    async with GatewayWorld() as world:
        assert (await ask(world, [DIGEST])).json()["missing"] == [DIGEST]
        answer = await put(world, DATA)
        assert (answer.status_code, answer.json()["bytes"]) == (200, len(DATA))
        assert (await ask(world, [DIGEST])).json()["missing"] == []


async def test_a_forged_digest_is_refused() -> None:
    """Nothing is stored under a name that is not the bytes' own."""
    async with GatewayWorld() as world:
        other = trees.digest_of(b"other").hex()
        answer = await put(world, DATA, other)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "digest")
        assert (await ask(world, [DIGEST, other])).json()["missing"] == [DIGEST, other]


async def test_pieces_are_bounded() -> None:
    """The bytes of one, the digests of a question, the form of a digest, the media type."""
    async with GatewayWorld() as world:
        assert (await put(world, bytes(trees.PIECE_BYTES_MAX))).status_code == 200
        assert (await put(world, bytes(trees.PIECE_BYTES_MAX + 1))).status_code == 413
        assert (await ask(world, [DIGEST] * 501)).status_code == 422
        for bad in ("x", DIGEST.upper(), f"{DIGEST}0", "*", "../" * 21 + "a"):
            assert (await ask(world, [bad])).json()["errors"][0]["field"] == "digests[0]"
        assert (await ask(world, 7)).status_code == 422
        assert (await put(world, DATA, "%2e%2e")).status_code in (404, 422)
        answer = await put(world, DATA, **{"content-type": "application/json"})
        assert answer.status_code == 415


async def test_a_full_store_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bus refuses beyond its bound; nothing of others is removed for it."""
    async with GatewayWorld() as world:

        async def full(_: bytes) -> None:
            raise StreamFull("maximum bytes exceeded")

        monkeypatch.setattr(world.gateway.pieces, "put", full)
        answer = await put(world, DATA)
        assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (503, "pieces_full")
        assert "FAIRLEAD_PIECE_MAX_BYTES" in answer.json()["hint"]


async def test_a_job_runs_in_a_directory_that_the_cluster_has() -> None:
    """Its job file names the root; one that is not there, or no directory's name, is refused before the queue decides."""
    async with GatewayWorld() as world:
        name = await send_tree(world)
        job = await world.submit(sync=name)
        assert (await world.http.get(f"/v1/jobs/{job}")).json()["spec"]["sync"] == name
        unknown = trees.name_of_tree(trees.digest_of(b"nobody sent it"))
        for body in (
            {"command": ["true"], "sync": unknown},
            [{"command": ["true"]}, {"command": ["true"], "sync": unknown}],
            {"command": ["true"], "sync": "./src"},
            {"command": ["true"], "sync": name, "workdir": "/tmp/x"},
        ):
            answer = await world.http.post("/v1/jobs", json=body)
            assert answer.status_code == 422, answer.text
            assert answer.json()["errors"][0]["field"].rpartition(".")[2] in ("sync", "workdir")
        assert len((await world.http.get("/v1/jobs")).json()["items"]) == 1


async def test_the_directory_of_a_job_that_waits_is_renewed() -> None:
    """However long it waits; that of an ended one is not."""
    now = 1e9
    async with GatewayWorld() as world:
        store = PieceStore(world.hub.connect(), lambda: now, {})
        names = []
        for text in (b"waits", b"ended"):
            group = trees.encode_piece(TreeGroup(entries=(TreeEntry(path="x", size=len(text), data=text),)))
            root = trees.tree_of([trees.digest_of(group)], 1, len(text))
            for piece in (group, root):
                await store.put(piece)
            names.append(trees.name_of_tree(trees.digest_of(root)))
        await world.submit(sync=names[0], array=2)
        ended = await world.submit(sync=names[1])
        await world.http.post(f"/v1/jobs/{ended}:cancel", json={})
        await world.in_state(ended, "cancelled")
        assert directories_of(world.gateway.views) == [trees.parse_tree_name(names[0])]
        now += 16 * 86400
        renewal = PieceRenewal(world.gateway.views, store, lambda: True)
        assert [await renewal.look(), await renewal.look()] == [2, 0]


async def test_pieces_are_taken_from_submitters_alone() -> None:
    """Pieces take room; and whoever asks what is missing learns what others have sent."""
    async with AccountsWorld(queue=True) as world:
        member = await world.person("ada", member="queue:default")
        viewer = await world.person("eve", viewer="queue:default")
        for principal, status in ((member, 200), (viewer, 403)):
            _, session = await world.session(principal)
            headers = {"authorization": f"Bearer {session}"}
            answer = await world.http.post("/v1/pieces:missing", json={"digests": [DIGEST]}, headers=headers)
            assert answer.status_code == status, answer.text
            assert (await put(world, DATA, **headers)).status_code == status
        assert (await put(world, DATA)).status_code == 401
