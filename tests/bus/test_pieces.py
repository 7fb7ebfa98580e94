"""Pieces of directories on the bus: sealed, kept for their life, found damaged; on the in-memory twin and a real nats-server."""

import asyncio

import pytest

from fairlead_bus.pieces import PieceDamaged, PieceStore, address_of, seal, unseal
from fairlead_schemas.wire import subjects, trees
from fairlead_schemas.wire.trees import TreeEntry, TreeGroup
from tests.bus.worlds import BusWorld

DAY_S = 86400
DATA = b"print('hello')\n" * 100
DIGEST = trees.digest_of(DATA)


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


async def store_of(world: BusWorld, clock: Clock) -> tuple[PieceStore, PieceStore]:
    """The store, and another client's."""
    first, second = await world.connect(), await world.connect()
    return PieceStore(first, clock, {}), PieceStore(second, clock, {})


async def test_a_piece_is_found_by_its_digest(world: BusWorld) -> None:
    """And is missing before."""
    store, other = await store_of(world, Clock())
    absent = trees.digest_of(b"other")
    assert await store.missing([DIGEST, absent, DIGEST]) == [DIGEST, absent]
    await store.put(DATA)
    assert await store.missing([absent, DIGEST]) == [absent]
    assert (await other.get(DIGEST), await other.get(absent)) == (DATA, None)
    assert (await other.has(DIGEST), await other.has(absent)) == (True, False)


async def test_the_bus_shows_nothing_of_a_piece(world: BusWorld) -> None:
    """Neither its bytes nor its digest are among what is stored: a node reads what it does not know, and learns nothing."""
    bus = await world.connect()
    await PieceStore(bus, Clock(), {}).put(DATA)
    keys = await bus.keys(subjects.PIECE, "data")
    stored = await bus.get(subjects.PIECE, keys[0])
    assert keys == [subjects.piece_key(address_of(DIGEST))]
    assert stored is not None
    assert b"hello" not in stored.value
    assert DIGEST.hex() not in keys[0]
    with pytest.raises(PieceDamaged):
        unseal(trees.digest_of(b"a guess"), stored.value)


async def test_a_damaged_piece_is_never_given(world: BusWorld) -> None:
    """Flipped bits, another piece's bytes, none at all."""
    bus = await world.connect()
    store = PieceStore(bus, Clock(), {})
    await store.put(DATA)
    sealed = seal(DATA)
    for stored in (sealed[:10] + bytes([sealed[10] ^ 1]) + sealed[11:], seal(b"another"), b"x"):
        await bus.put(subjects.PIECE, subjects.piece_key(address_of(DIGEST)), stored)
        with pytest.raises(PieceDamaged):
            await store.get(DIGEST)


async def test_an_old_piece_counts_as_missing(world: BusWorld) -> None:
    """So that it is kept for half of its life at least after any question."""
    clock = Clock()
    store, _ = await store_of(world, clock)
    await store.put(DATA)
    clock.now += 15 * DAY_S - 1
    assert await store.missing([DIGEST]) == []
    clock.now += 2
    assert await store.missing([DIGEST]) == [DIGEST]
    assert await store.has(DIGEST)
    await store.put(DATA)
    assert await store.missing([DIGEST]) == []


async def test_a_directory_is_renewed_with_all_its_pieces(world: BusWorld) -> None:
    """Root, groups and pieces of large files, each once, and none before half of its life is over."""
    clock = Clock()
    store, _ = await store_of(world, clock)
    large = [bytes([value]) * trees.PIECE_BYTES_MAX for value in (1, 2)]
    entry = TreeEntry(path="weights", size=2 * trees.PIECE_BYTES_MAX, pieces=tuple(map(trees.digest_of, large)))
    group = trees.encode_piece(TreeGroup(entries=(entry,)))
    root = trees.tree_of([trees.digest_of(group)], 1, entry.size)
    for data in (*large, group, root):
        await store.put(data)
    name = trees.digest_of(root)
    assert await store.renew(name) == 0
    clock.now += 16 * DAY_S
    assert await store.renew(name) == 4
    assert await store.missing(map(trees.digest_of, (*large, group, root))) == []


async def test_a_directory_that_is_not_whole_is_renewed_as_far_as_it_is(world: BusWorld) -> None:
    """A root that is no root, and one that is gone: nothing is raised for jobs that wait."""
    clock = Clock()
    store, _ = await store_of(world, clock)
    await store.put(b"no root")
    clock.now += 16 * DAY_S
    assert await store.renew(trees.digest_of(b"no root")) == 0
    assert await store.renew(DIGEST) == 0


async def test_many_questions_are_few_at_once(world: BusWorld) -> None:
    """Of hundreds of pieces, half of them there."""
    store, _ = await store_of(world, Clock())
    pieces = [b"%d" % number for number in range(400)]
    await asyncio.gather(*map(store.put, pieces[::2]))
    assert await store.missing(map(trees.digest_of, pieces)) == [trees.digest_of(each) for each in pieces[1::2]]
