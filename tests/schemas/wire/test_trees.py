"""Directories as pieces: their bounds, their groups, and hostile ones. Pure."""

import pytest

from fairlead_schemas.wire import trees
from fairlead_schemas.wire.trees import PathCheck, Tree, TreeEntry, TreeGroup, TreeRefused

DIGEST = trees.digest_of(b"")

#: (path, a word of the refusal; "" where it may be)
PATHS = [
    ("train.py", ""),
    ("a/b/c", ""),
    ("a b/é\n", ""),
    ("..data", ""),
    ("", "relative"),
    ("/etc/passwd", "relative"),
    ("../x", "relative"),
    ("a/../../x", "relative"),
    ("a//b", "relative"),
    ("a/./b", "relative"),
    ("a/", "relative"),
    ("a\0b", "relative"),
    ("a\udcff", "UTF-8"),
    ("x" * 256, "at most"),
    ("/".join(["x" * 200] * 6), "at most"),
]


@pytest.mark.parametrize(("path", "word"), PATHS)
def test_a_path_stays_within_its_directory(path: str, word: str) -> None:
    """No path leads out of the directory, or cannot be a file's."""
    fault = trees.path_fault(path)
    assert (word in fault) if word else fault == ""


@pytest.mark.parametrize(
    ("path", "target", "ok"),
    [
        ("a", "b", True),
        ("a/b", "../c", True),
        ("a", "../c", False),
        ("a/b", "../../c", False),
        ("a", "/etc/passwd", False),
        ("a", "b/../../c", False),
        ("a", "..", False),
        ("a", "x\0y", False),
        ("a", "a", True),
    ],
)
def test_a_link_stays_within_its_directory(path: str, target: str, ok: bool) -> None:
    """A link to itself may be: links are made, never followed."""
    assert (trees.entry_fault(TreeEntry(path=path, target=target)) == "") is ok


def test_no_two_entries_are_in_one_place() -> None:
    """Neither the same path twice, nor a file below a file or a link, in either order."""
    check = PathCheck()
    assert [check.take(path) for path in ("a", "d/e", "d/f/g")] == ["", "", ""]
    assert "once" in check.take("a")
    assert "found a file or link: 'a'" in check.take("a/b")
    assert "once" in check.take("d")
    assert "found a file or link: 'd/e'" in check.take("d/e/x/y")


@pytest.mark.parametrize(
    "entry",
    [
        TreeEntry(path="a", size=3, data=b"ab"),
        TreeEntry(path="a", size=trees.PIECE_BYTES_MAX + 1, pieces=(DIGEST,)),
        TreeEntry(path="a", size=1, pieces=(b"short",)),
        TreeEntry(path="a", size=1, data=b"x", pieces=(DIGEST,)),
        TreeEntry(path="a", size=-1),
        TreeEntry(path="a", directory=True, size=1, data=b"x"),
    ],
)
def test_content_that_is_not_of_its_size_is_refused(entry: TreeEntry) -> None:
    """A node reserves no more than an entry states, and gets what it states."""
    with pytest.raises(TreeRefused):
        trees.decode_group(trees.encode_piece(TreeGroup(entries=(entry,))))


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xc1", b'{"entries":[]}', b"\x81\xa7entries\x01", b"\xff" * 100])
def test_bytes_that_are_no_piece_are_refused(data: bytes) -> None:
    """Whoever may send pieces may send anything."""
    with pytest.raises(TreeRefused):
        trees.decode_tree(data)
    with pytest.raises(TreeRefused):
        trees.decode_group(data)


@pytest.mark.parametrize(
    ("tree", "word"),
    [
        (Tree(entries=trees.ENTRIES_MAX + 1, size=0, groups=()), "at most 50000 files"),
        (Tree(entries=-1, size=0, groups=()), "at most"),
        (Tree(entries=1, size=trees.TREE_BYTES_MAX + 1, groups=()), "at most 2.0 GiB"),
        (Tree(entries=1, size=1, groups=(b"x",)), "digests"),
        (Tree(version=2, entries=1, size=1, groups=()), "version"),
    ],
)
def test_a_tree_beyond_the_bounds_is_refused(tree: Tree, word: str) -> None:
    """A node looks at the root before it fetches anything else."""
    with pytest.raises(TreeRefused, match=word):
        trees.decode_tree(trees.encode_piece(tree))


def test_a_file_more_changes_its_own_group_alone() -> None:
    """The ends of groups depend on paths, not on how many files come before."""
    paths = [f"src/module_{number:04}.py" for number in range(1000)]

    def groups(given: list[str]) -> list[tuple[str, ...]]:
        return [tuple(each) for each in trees.grouped((path, 100, path) for path in sorted(given))]

    before, after = groups(paths), groups([*paths, "src/module_0500a.py"])
    assert 10 < len(before) < 100
    assert len(set(before) - set(after)) == 1
    assert [path for group in before for path in group] == paths


def test_a_group_is_within_its_bounds() -> None:
    """By content and by entries; a full group is a piece that may be sent."""
    entries = [
        TreeEntry(path=f"{n:04}", size=trees.SMALL_BYTES_MAX, data=bytes(trees.SMALL_BYTES_MAX)) for n in range(200)
    ]
    by_size = list(trees.grouped((entry.path, entry.size, entry) for entry in entries))
    assert max(len(group) for group in by_size) == trees.GROUP_BYTES_MAX // trees.SMALL_BYTES_MAX
    long = ["/".join(["x" * 200] * 5) + f"{n:04}" for n in range(500)]
    by_count = list(trees.grouped((path, 0, TreeEntry(path=path)) for path in long))
    assert max(map(len, by_count)) <= trees.GROUP_ENTRIES_MAX
    for group in (*by_size, *by_count):
        assert len(trees.encode_piece(TreeGroup(entries=tuple(group)))) <= trees.PIECE_BYTES_MAX


def test_a_tree_has_one_name() -> None:
    """The name in a job file and the digest are two forms of one thing; other texts are no names."""
    name = trees.name_of_tree(DIGEST)
    assert trees.parse_tree_name(name) == DIGEST
    for other in ("", ".", "src", "sha256:", name.upper(), name[:-1], name + "0", "sha256:" + "g" * 64):
        assert trees.parse_tree_name(other) is None


def test_a_root_piece_can_be_sent() -> None:
    """A directory of more groups than a root piece has room for is refused where it is made."""
    with pytest.raises(TreeRefused, match="groups of files"):
        trees.tree_of([DIGEST] * 20_000, 20_000, 0)
    assert len(trees.decode_tree(trees.tree_of([DIGEST] * 10_000, 10_000, 5)).groups) == 10_000
