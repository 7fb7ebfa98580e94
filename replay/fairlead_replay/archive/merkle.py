"""The Merkle tree of RFC 6962 (section 2.1): roots, proofs that an entry is in it, proofs that it only grew. Pure.

A leaf's hash is SHA-256(0x00 || entry), a node's SHA-256(0x01 || left || right); a tree of n leaves splits at the largest
power of two below n. Hashes are 32 bytes. A proof is a list of hashes, from the leaves up. The checking functions follow
RFC 9162, sections 2.1.3.2 and 2.1.4.2, which give the same tree's checks as algorithms.
"""

import hashlib
from collections.abc import Sequence

HASH_BYTES = 32
#: The root of a tree without leaves.
EMPTY = hashlib.sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """The hash of an entry as a leaf."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of the node above two."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class MerkleTree:
    """Grows leaf by leaf and knows its root; keeps one hash per set bit of its size, so 20 for a million leaves."""

    def __init__(self, size: int = 0, peaks: Sequence[bytes] = ()) -> None:
        if len(peaks) != size.bit_count():
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} peaks, found {len(peaks)}")
        self.size = size
        #: Roots of the full subtrees from left to right, largest first.
        self.peaks = list(peaks)

    def add(self, leaf: bytes) -> None:
        """Add one leaf, given by its hash."""
        covered = self.size
        while covered & 1:
            leaf = node_hash(self.peaks.pop(), leaf)
            covered >>= 1
        self.peaks.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        """The root over all leaves so far."""
        if not self.peaks:
            return EMPTY
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = node_hash(peak, root)
        return root


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root over leaf hashes."""
    tree = MerkleTree()
    for leaf in leaves:
        tree.add(leaf)
    return tree.root()


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes that lead from the leaf at `index` (from 0) to the root over `leaves`. Raises IndexError."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"a tree of {len(leaves)} leaves has none at {index}")
    if len(leaves) == 1:
        return []
    split = _split(len(leaves))
    if index < split:
        return [*inclusion_proof(leaves[:split], index), root_of(leaves[split:])]
    return [*inclusion_proof(leaves[split:], index - split), root_of(leaves[:split])]


def consistency_proof(leaves: Sequence[bytes], before: int) -> list[bytes]:
    """The hashes that show that the tree over the first `before` leaves is the beginning of this one. Raises IndexError."""
    if not 0 < before <= len(leaves):
        raise IndexError(f"expected a size from 1 to {len(leaves)}, found {before}")
    return _subproof(leaves, before, known=True)


def _subproof(leaves: Sequence[bytes], before: int, *, known: bool) -> list[bytes]:
    """RFC 6962's SUBPROOF: `known` says that the verifier has the root of these leaves' beginning already."""
    if before == len(leaves):
        return [] if known else [root_of(leaves)]
    split = _split(len(leaves))
    if before <= split:
        return [*_subproof(leaves[:split], before, known=known), root_of(leaves[split:])]
    return [*_subproof(leaves[split:], before - split, known=False), root_of(leaves[:split])]


def includes(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """True if the proof shows that the leaf is at `index` in the tree with this size and root (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    at, last, found = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if at & 1 or at == last:
            found = node_hash(sibling, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and found == root


def grew(before: int, before_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """True if the proof shows that the tree of size `before` is the beginning of that of `size` (RFC 9162, 2.1.4.2)."""
    if before == size:
        return not proof and before_root == root
    if not 0 < before < size or not proof:
        return False
    hashes = list(proof) if before & (before - 1) else [before_root, *proof]
    at, last = before - 1, size - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    old = new = hashes[0]
    for sibling in hashes[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and old == before_root and new == root


def _split(count: int) -> int:
    """The largest power of two below a count above 1."""
    return 1 << (count - 1).bit_length() - 1
