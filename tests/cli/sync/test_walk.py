"""Files that go with a job: what `.gitignore` files leave out, what cannot be sent, and what is too much."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from fairlead.errors import InputRefused
from fairlead.sync.walk import walk
from fairlead_schemas.wire import trees

pytestmark = pytest.mark.connected


def make(root: Path, *files: str, **texts: str) -> None:
    """Make files; those of `texts` have a text, "_" in their names for "/"."""
    for path in (*files, *(name.replace("__", "/") for name in texts)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(texts.get(path.replace("/", "__"), ""))


def ignore(root: Path, text: str) -> None:
    """Write a directory's rules."""
    root.mkdir(parents=True, exist_ok=True)
    (root / ".gitignore").write_text(text)


def names(root: Path) -> list[str]:
    """What is sent, without the rules themselves."""
    return [each.path for each in walk(root).found if not each.path.endswith(".gitignore")]


def test_all_files_are_sent_in_the_order_of_paths(tmp_path: Path) -> None:
    """Hidden ones, empty directories and links, too; a repository and the data of a stack are not."""
    make(tmp_path, "b/x", "a", ".env", ".git/config", "b/.git/HEAD", ".fairlead/log")
    (tmp_path / "empty/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("b/x")
    (tmp_path / "loop").symlink_to("loop")
    found = {each.path: (each.kind, each.target) for each in walk(tmp_path).found}
    assert found == {
        ".env": ("file", ""),
        "a": ("file", ""),
        "b/x": ("file", ""),
        "empty/deep": ("directory", ""),
        "link": ("link", "b/x"),
        "loop": ("link", "loop"),
    }
    assert [*found] == sorted(found)


#: (rules of the top, rules of "sub", files, those that are sent)
RULES = [
    ("*.log", "", ["a.log", "sub/b.log", "c.py"], ["c.py"]),
    ("/a", "", ["a", "sub/a"], ["sub/a"]),
    ("build/", "", ["build/x", "sub/build/y", "builds"], ["builds"]),
    ("build/\n!build/keep", "", ["build/keep"], []),
    ("build/*\n!build/keep", "", ["build/keep", "build/x"], ["build/keep"]),
    ("*.log\n!keep.log", "", ["keep.log", "x.log"], ["keep.log"]),
    ("*.log", "!*.log", ["a.log", "sub/b.log"], ["sub/b.log"]),
    ("", "/only", ["only", "sub/only", "sub/deep/only"], ["only", "sub/deep/only"]),
    ("sub/deep/*.bin", "", ["sub/deep/x.bin", "deep/x.bin"], ["deep/x.bin"]),
    ("**/tmp\n# no rule\n\n\\#odd", "", ["x/tmp/y", "#odd", "z"], ["z"]),
    ("a b\nc\\ ", "", ["a b", "c ", "c"], ["c"]),
    (
        "*\n!*.py\n!*/",
        "",
        ["a.py", "sub/b.py", "sub/c", "sub/deep/d.py", "sub/deep/e"],
        ["a.py", "sub/b.py", "sub/deep/d.py"],
    ),
    ("/*\n!/src/", "", ["a", "src/b", "src/deep/c", "other/d"], ["src/b", "src/deep/c"]),
    ("a/**\n!a/b/\n!a/b/**", "", ["a/x", "a/b/c", "a/b/d/e"], ["a/b/c", "a/b/d/e"]),
    ("a/**\n!a/b/", "", ["a/x", "a/b/c"], []),
    ("data/\n!data/", "", ["data/x"], ["data/x"]),
    ("[ab].py\n*.o?", "", ["a.py", "c.py", "x.ob", "x.o"], ["c.py", "x.o"]),
    ("[!a]x\n[]]y\n[^b]z\n[0-9]", "", ["ax", "bx", "]y", "bz", "cz", "5", "[q"], ["[q", "ax", "bz"]),
    ("x[/y\n[", "", ["[", "x[", "ok"], ["[", "ok", "x["]),
    ("\\!odd\n\\*\na\\?b", "", ["!odd", "*", "a?b", "axb"], ["axb"]),
    ("a/**/b\n**", "!keep", ["a/b", "c", "sub/keep"], []),
    ("foo/**/bar", "", ["foo/bar", "foo/x/y/bar", "foo/z", "x/foo/bar"], ["foo/z", "x/foo/bar"]),
    ("*.tar.*\n!*.tar.gz", "", ["a.tar.xz", "b.tar.gz"], ["b.tar.gz"]),
    ("node_modules", "", ["node_modules/x/y", "sub/node_modules/z", "sub/ok"], ["sub/ok"]),
    (
        "*.py\n",
        "!keep.py",
        ["a.py", "sub/keep.py", "sub/deep/keep.py", "sub/b.py"],
        ["sub/deep/keep.py", "sub/keep.py"],
    ),
]


@pytest.mark.parametrize(("top", "sub", "files", "sent"), RULES)
def test_rules_are_those_of_git(tmp_path: Path, top: str, sub: str, files: list[str], sent: list[str]) -> None:
    """By the table, and where there is a git by its own answer."""
    make(tmp_path, *files)
    ignore(tmp_path, top)
    if sub:
        ignore(tmp_path / "sub", sub)
    assert names(tmp_path) == sorted(sent)
    if shutil.which("git"):
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, env=environment, check=True)
        line = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
        listed = subprocess.run(line, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
        assert sorted(path for path in listed.split("\0") if path and not path.endswith(".gitignore")) == sorted(sent)


def test_rules_above_count_up_to_the_top_of_the_repository(tmp_path: Path) -> None:
    """A part of a repository is sent as Git sees it; beyond the repository nothing counts."""
    ignore(tmp_path, "*.py")
    (tmp_path / "repository/.git").mkdir(parents=True)
    ignore(tmp_path / "repository", "*.log\n/part/data\n")
    make(tmp_path / "repository/part", "a.py", "x.log", "data/x", "deep/data/y")
    assert names(tmp_path / "repository/part") == ["a.py", "deep/data/y"]
    (tmp_path / "repository/.git").rmdir()
    assert names(tmp_path / "repository/part") == ["a.py", "data/x", "deep/data/y", "x.log"]


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    """Links that lead out and names that are no text, several at once, with what to do."""
    make(tmp_path, "ok")
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / "up").symlink_to("../x")
    (tmp_path / os.fsdecode(b"bad\xff")).touch()
    with pytest.raises(InputRefused) as refused:
        walk(tmp_path)
    lines = str(refused.value).splitlines()
    assert lines[0].endswith("cannot be sent")
    assert len(lines) == 4
    assert all(any(word in line for line in lines) for word in ("'/etc/passwd'", "'../x'", "UTF-8"))
    assert ".gitignore" in refused.value.hint
    ignore(tmp_path, "out\nup\nbad*\n")
    assert names(tmp_path) == ["ok"]


def test_sockets_and_pipes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are left out."""
    make(tmp_path, "a")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
        walked = walk(tmp_path)
    assert ([each.path for each in walked.found], walked.special) == (["a"], 2)


def test_what_is_too_much_is_refused_with_its_largest_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes (those of a hole count, as a copy has them) and by files."""
    make(tmp_path, "src/a", "src/b", "data/x")
    os.truncate(tmp_path / "data/x", trees.TREE_BYTES_MAX)
    assert walk(tmp_path).size == trees.TREE_BYTES_MAX
    os.truncate(tmp_path / "src/a", 1)
    with pytest.raises(InputRefused, match=r"expected at most 2.0 GiB, found 2.0 GiB\n  data: 1 file, 2.0 GiB"):
        walk(tmp_path)
    os.truncate(tmp_path / "data/x", 0)
    monkeypatch.setattr(trees, "ENTRIES_MAX", 2)
    with pytest.raises(InputRefused, match=r"(?s)expected at most 2 files, found 3.*src: 2 files"):
        walk(tmp_path)


@pytest.mark.parametrize("name", ["none", "file"])
def test_a_directory_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    """By its path."""
    (tmp_path / "file").touch()
    with pytest.raises(InputRefused, match=name):
        walk(tmp_path / name)
