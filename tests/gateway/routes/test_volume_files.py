"""Files of volumes over HTTP: tus 1.0 and Range, who may, and answers that no browser runs."""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import httpx

from fairlead_bus.environment_settings import StoragePlace
from fairlead_schemas.wire import commands as cmd
from tests.gateway.access.signed_world import SignedWorld

TUS = {"Tus-Resumable": "1.0.0"}
CHUNK = {**TUS, "Content-Type": "application/offset+octet-stream"}


async def ready(tmp_path: Path) -> SignedWorld:
    """A world with a volume `mine` of ann, which eve may read and bob may not see; enter it first."""
    place = tmp_path / "place"
    place.mkdir(mode=0o700)
    world = SignedWorld()
    world.settings = world.settings._replace(storage={"shared": StoragePlace(path=str(place), backend="directory")})
    return world


async def filled(world: SignedWorld) -> None:
    """Make the class, the volume and the people."""
    await world.storage(cmd.SetStorageClass, name="shared", backend="directory", user_bytes_max=8 << 30)
    for name in ("ann", "eve", "bob"):
        await world.person(name)
    await world.storage(cmd.CreateVolume, volume="mine", owner="user:ann", storage_class="shared", quota_bytes=1 << 20)
    await world.grant("eve", "viewer", "volume:mine")


def metadata(**words: str) -> str:
    return ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in words.items())


async def begun(world: SignedWorld, who: str, path: str, data: bytes, **words: str) -> httpx.Response:
    headers = {**TUS, "Upload-Length": str(len(data)), "Upload-Metadata": metadata(path=path, **words)}
    return await world.ask(who, "POST", "/v1/volumes/mine/uploads", headers=headers)


async def sent(world: SignedWorld, at: str, offset: int, data: bytes, **more: Any) -> httpx.Response:
    headers = {**CHUNK, "Upload-Offset": str(offset), **more}
    return await world.ask("ann", "PATCH", at, headers=headers, content=data)


async def test_a_file_goes_up_in_parts_and_down_in_ranges(tmp_path: Path) -> None:
    """The offset is asked for as tus says, a part for another place is refused with the right one, and digests agree."""
    data = os.urandom(1000)
    digest = hashlib.sha256(data).hexdigest()
    async with await ready(tmp_path) as world:
        await filled(world)
        answer = await begun(world, "ann", "runs/a.html", data, digest=digest)
        assert answer.status_code == 201 and answer.headers["upload-offset"] == "0", answer.text
        at = answer.headers["location"]
        answer = await sent(world, at, 0, data[:400])
        assert (answer.status_code, answer.headers["upload-offset"]) == (204, "400")
        answer = await world.ask("ann", "HEAD", at)
        assert (answer.headers["upload-offset"], answer.headers["upload-length"]) == ("400", "1000")
        assert (await begun(world, "ann", "runs/a.html", data, digest=digest)).headers["location"] == at
        answer = await sent(world, at, 0, data)
        assert (answer.status_code, answer.headers["upload-offset"]) == (409, "400")
        assert (await sent(world, at, 400, data[400:])).headers["upload-offset"] == "1000"
        assert (await world.ask("ann", "HEAD", at)).status_code == 404
        where = "/v1/volumes/mine/files?path=runs/a.html"
        answer = await world.ask("eve", "GET", where, headers={"Want-Repr-Digest": "sha-256=1"})
        assert answer.content == data and answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["repr-digest"] == f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:"
        assert (
            answer.headers["content-disposition"] == "attachment"
            and "sandbox" in answer.headers["content-security-policy"]
        )
        tag = answer.headers["etag"]
        for words, status, expected in (
            ({"Range": "bytes=10-19"}, 206, data[10:20]),
            ({"Range": "bytes=990-5000"}, 206, data[990:]),
            ({"Range": "bytes=990-", "If-Range": tag}, 206, data[990:]),
            ({"Range": "bytes=990-", "If-Range": '"other"'}, 200, data),
            ({"Range": "bytes=-5"}, 200, data),
            ({"Range": "bytes=0-1,5-6"}, 200, data),
        ):
            answer = await world.ask("eve", "GET", where, headers=words)
            assert (answer.status_code, answer.content) == (status, expected), words
        answer = await world.ask("eve", "GET", where, headers={"Range": "bytes=1000-"})
        assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */1000")


async def test_who_may_only_read_sends_nothing_and_others_see_nothing(tmp_path: Path) -> None:
    """A hidden volume is answered like one that is not there; a right that ends, ends an upload that was begun."""
    async with await ready(tmp_path) as world:
        await filled(world)
        assert (await begun(world, "eve", "a", b"abc")).status_code == 403
        hidden = await begun(world, "bob", "a", b"abc")
        none = await world.ask("bob", "POST", "/v1/volumes/none/uploads", headers=TUS)
        assert (hidden.status_code, none.status_code) == (404, 404)
        await world.grant("bob", "member", "volume:mine")
        at = (await begun(world, "bob", "a", b"abc")).headers["location"]
        await world.revoke("bob", "member", "volume:mine")
        headers = {**CHUNK, "Upload-Offset": "0"}
        assert (await world.ask("bob", "PATCH", at, headers=headers, content=b"abc")).status_code == 404
        for path in ("a", "../uploads", "%00", "a/../../x"):
            assert (await world.ask("eve", "GET", f"/v1/volumes/mine/files?path={path}")).status_code == 422


async def test_wrong_requests_name_what_is_wrong(tmp_path: Path) -> None:
    """Version, length, metadata, media type, a file that is larger than the volume, and one of another digest."""
    async with await ready(tmp_path) as world:
        await filled(world)
        answer = await world.ask("ann", "POST", "/v1/volumes/mine/uploads", headers={"Upload-Length": "1"})
        assert (answer.status_code, answer.headers["tus-version"]) == (412, "1.0.0")
        for headers, field in (
            ({"Upload-Length": "-1"}, "Upload-Length"),
            ({"Upload-Length": "9" * 16}, "Upload-Length"),
            ({"Upload-Length": "1", "Upload-Metadata": "path !"}, "Upload-Metadata"),
            ({"Upload-Length": "1", "Upload-Metadata": metadata(path="a", digest="x")}, "Upload-Metadata"),
            ({"Upload-Length": "1", "Upload-Metadata": metadata(path="../a")}, "path"),
            ({"Upload-Length": "1"}, "path"),
        ):
            answer = await world.ask("ann", "POST", "/v1/volumes/mine/uploads", headers={**TUS, **headers})
            assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == field, headers
        assert (await begun(world, "ann", "big", bytes(2 << 20))).status_code == 413
        at = (await begun(world, "ann", "a", b"abc", digest=hashlib.sha256(b"abd").hexdigest())).headers["location"]
        answer = await sent(world, at, 0, b"abc", **{"Content-Type": "text/plain"})
        assert answer.status_code == 415
        assert (await sent(world, at, 0, b"abc")).json()["errors"][0]["field"] == "digest"
        at = (await begun(world, "ann", "a", b"abc")).headers["location"]
        assert (await world.ask("ann", "DELETE", at, headers=TUS)).status_code == 204
        assert (await world.ask("ann", "DELETE", at, headers=TUS)).status_code == 404
        assert (await begun(world, "ann", "empty", b"")).status_code == 201
        assert (await world.ask("ann", "GET", "/v1/volumes/mine/files?path=empty")).content == b""
