"""`volumes`, `datasets`, and a dataset as the directory of a job, against a stub gateway."""

from pathlib import Path
from typing import Any

import pytest

from fairlead.client import Client
from fairlead.commands import storage
from fairlead.commands.submit import with_directories
from fairlead.errors import InputRefused, Unreachable
from fairlead_schemas.wire import trees
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, page

DIGEST = f"sha256:{64 * 'a'}"
DATASET: dict[str, Any] = {
    "id": "flowers@1",
    "name": "flowers",
    "version": "1",
    "owner": "project:llm",
    "owner_name": "project:llm",
    "digest": DIGEST,
    "size_bytes": 15,
    "files": 1,
    "retired": False,
    "added_at": "2026-01-01T00:00:00.000Z",
    "added_by": "ann",
    "sequence": 40,
}
VOLUME: dict[str, Any] = {
    "name": "data",
    "owner": "user:p1",
    "owner_name": "ann",
    "class": "shared",
    "quota": "counted",
    "quota_bytes": 2**30,
    "created_at": "2026-01-01T00:00:00.000Z",
    "created_by": "ann",
    "may": ["volume:read", "volume:write"],
    "sequence": 40,
}
GRANT: dict[str, Any] = {
    "subject": "p2",
    "subject_name": "bob",
    "role": "member",
    "scope": "volume:data",
    "sources": [],
}


def test_volumes_are_listed_with_the_meaning_of_their_quota(gateway: GatewayStub, run: Run) -> None:
    """A row says whose it is, how much it holds, if that is enforced, and what the caller may do."""
    gateway.on("GET", "/v1/volumes", page(VOLUME))
    assert run("volumes", "list").out.splitlines()[1].split() == [
        "data",
        "ann",
        "shared",
        "1.0",
        "GiB",
        "counted",
        "read,",
        "write",
    ]


def test_a_volume_is_shared_by_a_role_at_it(gateway: GatewayStub, run: Run) -> None:
    """The word for people becomes the role of the table; taking it back says when that counts."""
    gateway.on("POST", "/v1/access:grant", GRANT)
    gateway.on("POST", "/v1/access:revoke", GRANT)
    assert run("volumes", "share", "data", "bob", "write").out == "bob may write data\n"
    ran = run("volumes", "share", "data", "bob", "write", "--stop")
    assert ran.out == "bob may no longer write data\n" and "until it ends" in ran.err
    assert gateway.bodies() == 2 * [{"subject": "bob", "role": "member", "scope": "volume:data"}]
    ran = run("volumes", "share", "data", "bob", "own")
    assert ran.code != 0 and 'expected read, write, manage, found "own"' in ran.err


def test_a_dataset_stands_for_its_directory(gateway: GatewayStub, tmp_path: Path) -> None:
    """Where no directory has the name; a retired one is refused, and so is one that is not there, by the field."""
    gateway.on("GET", "/v1/datasets/flowers@1", DATASET)
    gateway.on("GET", "/v1/datasets/old@1", {**DATASET, "id": "old@1", "retired": True})
    job = {"command": ["true"], "sync": "flowers@1"}
    with Client("http://gateway") as client:
        assert with_directories([job], tmp_path, client) == [{**job, "sync": DIGEST}]
        with pytest.raises(InputRefused, match="sync: dataset old@1 is retired"):
            with_directories([{**job, "sync": "old@1"}], tmp_path, client)
        with pytest.raises(InputRefused, match=r'sync: expected a directory or a dataset .*, found "none@1"'):
            with_directories([{**job, "sync": "none@1"}], tmp_path, client)


class Source:
    """Client that has the pieces of one dataset, and breaks after some of them."""

    def __init__(self, pieces: list[bytes], breaks_after: int) -> None:
        self.pieces = {trees.digest_of(piece).hex(): piece for piece in pieces}
        self.left = breaks_after
        self.sent = 0

    def dataset_piece(self, dataset: str, digest: str) -> bytes:
        """Return a piece."""
        if not self.left:
            raise Unreachable("the connection broke")
        self.left -= 1
        self.sent += 1
        return self.pieces[digest]


def large() -> tuple[list[bytes], bytes, bytes]:
    """Pieces of a directory with one file of ten pieces, its root, and the file's bytes."""
    content = b"".join(bytes([number]) * trees.PIECE_BYTES_MAX for number in range(10))
    parts = [content[at : at + trees.PIECE_BYTES_MAX] for at in range(0, len(content), trees.PIECE_BYTES_MAX)]
    entry = trees.TreeEntry(path="big.bin", size=len(content), pieces=tuple(map(trees.digest_of, parts)))
    group = trees.encode_piece(trees.TreeGroup(entries=(entry,)))
    root = trees.tree_of([trees.digest_of(group)], 1, len(content))
    return [*parts, group, root], root, content


def test_a_fetch_that_breaks_after_every_piece_is_byte_equal_and_fetches_none_twice(tmp_path: Path) -> None:
    """Each try continues where the one before broke; nothing but the directory is left."""
    pieces, root, content = large()
    document = storage.DatasetInfo(**{**DATASET, "digest": trees.name_of_tree(trees.digest_of(root))})
    place, sent, tries = tmp_path / "flowers", 0, 0
    while not place.exists():
        tries += 1
        source = Source(pieces, 1)
        try:
            storage._fetch(source, document, place)  # type: ignore[arg-type]
        except Unreachable:
            pass
        sent += source.sent
        assert tries < 30
    assert (place / "big.bin").read_bytes() == content
    assert sent == len(pieces) and tries >= len(pieces)
    assert [each.name for each in tmp_path.iterdir()] == ["flowers"]


def test_a_piece_that_comes_damaged_is_not_kept(tmp_path: Path) -> None:
    """The fetch ends with the reason; a kept piece that was damaged on this disk is fetched again."""
    pieces, root, content = large()
    document = storage.DatasetInfo(**{**DATASET, "digest": trees.name_of_tree(trees.digest_of(root))})
    source, place = Source(pieces, 100), tmp_path / "flowers"
    first = trees.digest_of(pieces[0]).hex()
    source.pieces[first] = b"damaged"
    with pytest.raises(Unreachable, match="came damaged"):
        storage._fetch(source, document, place)  # type: ignore[arg-type]
    source.pieces[first] = pieces[0]
    kept = next((tmp_path / ".flowers.fairlead-part" / "pieces").iterdir())
    kept.write_bytes(b"damaged")
    storage._fetch(source, document, place)  # type: ignore[arg-type]
    assert (place / "big.bin").read_bytes() == content
