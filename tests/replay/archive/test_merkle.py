"""The tree is RFC 6962's: published roots, and proofs that hold for what is so and for nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_replay.archive.merkle import (
    EMPTY,
    MerkleTree,
    consistency_proof,
    grew,
    includes,
    inclusion_proof,
    leaf_hash,
    root_of,
)

#: Inputs and roots of the reference tests of certificate-transparency (github.com/google/certificate-transparency,
#: merkletree/merkle_tree_test.cc), which others use as well.
ENTRIES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAVES = [leaf_hash(bytes.fromhex(entry)) for entry in ENTRIES]


def leaves_of(count: int) -> list[bytes]:
    return [leaf_hash(str(number).encode()) for number in range(count)]


@pytest.mark.parametrize("size", range(1, 9))
def test_roots_are_the_published_ones(size: int) -> None:
    """Leaf by leaf, and opened again from its peaks in the middle."""
    assert root_of(LEAVES[:size]).hex() == ROOTS[size - 1]
    half = MerkleTree()
    for leaf in LEAVES[: size // 2]:
        half.add(leaf)
    again = MerkleTree(half.size, half.peaks)
    for leaf in LEAVES[size // 2 : size]:
        again.add(leaf)
    assert again.root().hex() == ROOTS[size - 1]


def test_an_empty_tree_has_the_hash_of_nothing() -> None:
    """RFC 6962: MTH({}) = SHA-256()."""
    assert MerkleTree().root() == EMPTY
    with pytest.raises(ValueError, match="has 2 peaks, found 1"):
        MerkleTree(5, [EMPTY])


@given(size=st.integers(1, 70), data=st.data())
def test_inclusion_is_shown_for_what_is_in_it(size: int, data: st.DataObject) -> None:
    """Every leaf at its place; not at another, not another leaf, not under another root, not with a hash more or less."""
    leaves, index = leaves_of(size), data.draw(st.integers(0, size - 1))
    proof, root = inclusion_proof(leaves, index), root_of(leaves)
    assert includes(leaves[index], index, size, proof, root)
    other = data.draw(st.integers(0, size - 1).filter(lambda at: at != index)) if size > 1 else size
    assert not includes(leaves[index], other, size, proof, root)
    assert not includes(leaf_hash(b"forged"), index, size, proof, root)
    assert not includes(leaves[index], index, size, proof, leaf_hash(b"root"))
    assert not includes(leaves[index], index, size, [*proof, EMPTY], root)
    assert not proof or not includes(leaves[index], index, size, proof[:-1], root)


@given(size=st.integers(1, 70), data=st.data())
def test_growth_is_proved_for_logs_that_grew(size: int, data: st.DataObject) -> None:
    """Every earlier size has a proof; another beginning or another end has none."""
    leaves, before = leaves_of(size), data.draw(st.integers(1, size))
    proof, root, early = consistency_proof(leaves, before), root_of(leaves), root_of(leaves[:before])
    assert grew(before, early, size, root, proof)
    assert not grew(before, leaf_hash(b"forged"), size, root, proof)
    assert not grew(before, early, size, leaf_hash(b"forged"), proof)
    assert not grew(before, early, size, root, [*proof, EMPTY])
    rewritten = [*leaves[: before - 1], leaf_hash(b"rewritten"), *leaves[before:]]
    assert not grew(before, early, size, root_of(rewritten), consistency_proof(rewritten, before))


def test_there_is_no_proof_of_what_is_not_there() -> None:
    """Beyond the end, and of a beginning that is empty."""
    with pytest.raises(IndexError, match="has none at 3"):
        inclusion_proof(leaves_of(3), 3)
    with pytest.raises(IndexError, match="from 1 to 3, found 0"):
        consistency_proof(leaves_of(3), 0)
