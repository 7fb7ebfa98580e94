"""Grants of a node: read from its admin's files, opened without following links, mounted, and gone afterwards."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_agent.launch.plan import Launch
from fairlead_agent.linux import mounts
from fairlead_agent.runtimes.docker.holdings import SECRET_BYTES_MAX, Holdings, NotGranted
from fairlead_agent.runtimes.docker.template import Bind
from fairlead_agent.settings import Grants, NodeMount, grants_from_environment
from fairlead_bus.environment_settings import BadSetting
from fairlead_schemas.jobfile.agent_fields import Secret, Volume
from tests.agent.runtime_watch import launch
from tests.schemas import hostile_names

FUZZED = 100_000
NO_MOUNT = "mounting: only root may mount (run the tests as root)"
root_only = pytest.mark.skipif(os.getuid() != 0, reason=NO_MOUNT)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A node's disk: a listed directory, a place for volumes, a store of secrets, and files outside of any grant."""
    for name in ("srv/datasets", "volumes", "secrets/vision", "outside", "agent"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "secrets").chmod(0o700)
    (tmp_path / "srv/datasets/one").write_text("1")
    (tmp_path / "secrets/vision/hf-token").write_bytes(b"s3cret")
    (tmp_path / "outside/treasure").write_text("gold")
    return tmp_path


@pytest.fixture
def held(tree: Path) -> Iterator[Holdings]:
    """Holdings of that node; nothing is mounted when the test has ended."""
    listed = {
        "datasets": NodeMount(path=str(tree / "srv/datasets")),
        "scratch": NodeMount(path=str(tree / "srv"), writable=True, projects=["vision"]),
        "all": NodeMount(path=str(tree)),
    }
    holdings = Holdings(tree / "agent", Grants(listed, str(tree / "volumes"), str(tree / "secrets")))
    yield holdings
    if os.getuid() == 0:
        holdings.keep_only([])
    assert not holdings.directory.is_mount()


def wants(*volumes: Volume, secrets: tuple[Secret, ...] = (), job: str = "7", project: str = "vision") -> Launch:
    return launch(job, "true", image="x")._replace(volumes=volumes, secrets=secrets, project=project)


def read_only(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


@root_only
def test_a_run_holds_what_it_asks_for(held: Holdings, tree: Path) -> None:
    """The listed directory read-only, the project's own writable, the secret for the program alone; then nothing."""
    wanted = wants(
        Volume("datasets", "/data", False, False),
        Volume("scratch", "/scratch", False, False),
        Volume("ckpt", "/ckpt", False, True),
        secrets=(Secret("hf-token", "/run/secrets/hf-token"),),
    )
    binds = held.hold(wanted)
    own = held.directory / "7.1.0"
    assert binds == [
        Bind(f"{own}/v0", "/data", False),
        Bind(f"{own}/v1", "/scratch", False),
        Bind(f"{own}/v2", "/ckpt", False),
        Bind(f"{own}/s0", "/run/secrets/hf-token", True),
    ]
    assert [read_only(bind.source) for bind in binds[:3]] == [True, False, False]
    flags = [os.statvfs(bind.source).f_flag for bind in binds]
    assert all(flag & os.ST_NOSUID and flag & os.ST_NODEV for flag in flags)
    assert (own / "v0/one").read_text() == "1"
    (own / "v2/saved").write_text("step 1")
    assert (tree / "volumes/vision/ckpt/saved").read_text() == "step 1"
    held.give(wanted, 1000, 1000)
    secret = (own / "s0").stat()
    assert (oct(secret.st_mode & 0o7777), secret.st_uid, (own / "s0").read_bytes()) == ("0o400", 1000, b"s3cret")
    assert (own.stat().st_mode & 0o077, held.directory.stat().st_mode & 0o077) == (0, 0)
    held.drop(wanted.key)
    assert not held.directory.exists()
    assert (tree / "srv/datasets/one").read_text() == "1" and (tree / "volumes/vision/ckpt/saved").exists()


@root_only
def test_grants_of_runs_that_no_longer_run_are_released(held: Holdings) -> None:
    """After a restart, by another process: running ones keep theirs."""
    first, second = wants(Volume("datasets", "/data", False, False)), wants(Volume("ckpt", "/c", False, True), job="8")
    held.hold(first)
    held.hold(second)
    held.keep_only([second.key])
    assert [path.name for path in held.directory.iterdir()] == ["8.1.0"]


@root_only
@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            wants(Volume("nowhere", "/data", False, False)),
            'lists no volume "nowhere" for project "vision".*create: true',
        ),
        (wants(Volume("scratch", "/data", False, False), project="speech"), 'no volume "scratch" for project "speech"'),
        (wants(Volume("all", "/data", False, False)), "the agent's own files lie in it"),
        (wants(secrets=(Secret("none", "/x"),)), 'secret "none" of project "vision" cannot be given'),
        (wants(secrets=(Secret("hf-token", "/x"),), project="speech"), 'secret "hf-token" of project "speech"'),
        (
            wants(Volume("datasets", "/a", False, False), secrets=(Secret("../../outside/treasure", "/x"),)),
            "expected one name",
        ),
        (wants(Volume("../../outside", "/a", False, True)), "expected one name"),
        (wants(Volume("ckpt", "/a", False, True), project="../outside"), "expected one name"),
    ],
)
def test_a_grant_that_is_missing_is_reported_and_leaves_nothing(held: Holdings, wanted: Launch, message: str) -> None:
    """By name, with the remedy; mounts that were ready are released."""
    with pytest.raises(NotGranted, match=message):
        held.hold(wanted)
    assert not held.directory.exists()


@root_only
def test_a_missing_grant_names_the_setting_to_change(tmp_path: Path) -> None:
    """Each by its setting."""
    none = Holdings(tmp_path)
    for wanted, setting in (
        (wants(Volume("a", "/a", False, False)), "FAIRLEAD_MOUNTS"),
        (wants(Volume("a", "/a", False, True)), "FAIRLEAD_VOLUMES"),
        (wants(secrets=(Secret("a", "/a"),)), "FAIRLEAD_SECRETS"),
    ):
        with pytest.raises(NotGranted, match=setting):
            none.hold(wanted)


@root_only
def test_links_lead_nowhere(held: Holdings, tree: Path) -> None:
    """In a listed path, in a project's volumes, in the store of secrets."""
    (tree / "srv/datasets").rename(tree / "srv/real")
    (tree / "srv/datasets").symlink_to(tree / "outside")
    (tree / "volumes/vision").mkdir()
    (tree / "volumes/vision/ckpt").symlink_to(tree / "outside")
    (tree / "secrets/vision/link").symlink_to(tree / "outside/treasure")
    (tree / "secrets/vision/pipe").touch()
    (tree / "secrets/vision/pipe").unlink()
    os.mkfifo(tree / "secrets/vision/pipe")
    (tree / "secrets/vision/large").write_bytes(b"x" * (SECRET_BYTES_MAX + 1))
    for wanted, words in (
        (wants(Volume("datasets", "/data", False, False)), "links are not followed"),
        (wants(Volume("ckpt", "/data", False, True)), "links are not followed"),
        (wants(secrets=(Secret("link", "/x"),)), "links are not followed"),
        (wants(secrets=(Secret("pipe", "/x"),)), "is not a file"),
        (wants(secrets=(Secret("large", "/x"),)), "larger than 65536 bytes"),
    ):
        with pytest.raises(NotGranted, match=words):
            held.hold(wanted)


def test_no_hostile_name_opens_anything(tree: Path) -> None:
    """A hundred thousand names straight at the file system, as if no rule had refused them before: as a part they are
    refused or not there, and none of them is made."""
    root = mounts.open_path(str(tree / "volumes"))
    before = sorted(str(path) for path in tree.rglob("*"))
    opened: list[str] = []
    for name in hostile_names.names(7, FUZZED):
        try:
            os.close(mounts.open_below(root, [name]))
            opened.append(name)
        except mounts.Closed:
            pass
    os.close(root)
    assert opened == []
    assert sorted(str(path) for path in tree.rglob("*")) == before


def test_a_name_never_leads_out_of_its_directory(tree: Path) -> None:
    """Hostile names that are valid file names stay within it."""
    root = mounts.open_path(str(tree / "volumes"))
    inside = os.fstat(root).st_ino
    made = 0
    for name in hostile_names.names(8, 2_000):
        try:
            below = mounts.open_below(root, [name], make_mode=0o700)
        except mounts.Closed:
            continue
        assert os.stat("..", dir_fd=below).st_ino == inside
        os.close(below)
        made += 1
    os.close(root)
    assert made == len(list((tree / "volumes").iterdir())) > 0
    assert [path.name for path in (tree / "outside").iterdir()] == ["treasure"]


# ---------------------------------------------------------------------------- settings


@pytest.mark.parametrize("name", ["mounts.toml", "mounts.json"])
def test_the_admins_list_is_read(tmp_path: Path, name: str) -> None:
    """In either form."""
    text = {
        "mounts.toml": '[datasets]\npath = "/srv/datasets"\nprojects = ["vision"]\n[tmp]\npath = "/nvme/tmp"\nwritable = true\n',
        "mounts.json": '{"datasets": {"path": "/srv/datasets", "projects": ["vision"]}, "tmp": {"path": "/nvme/tmp", "writable": true}}',
    }
    (tmp_path / name).write_text(text[name])
    assert grants_from_environment({"FAIRLEAD_MOUNTS": str(tmp_path / name)}).mounts == {
        "datasets": NodeMount(path="/srv/datasets", projects=["vision"]),
        "tmp": NodeMount(path="/nvme/tmp", writable=True),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[a]\npath = "/"', "a: expected a directory outside of /proc"),
        ('[a]\npath = "/etc/ssh"', "a: expected a directory outside of /proc"),
        ('[a]\npath = "/var"', "a: expected a directory that does not hold the engine's own"),
        ('[a]\npath = "srv"', "a: expected the full path"),
        ('[a]\npath = "/srv/../etc"', 'a: expected the full path.*found "/srv/../etc"'),
        ('["A b"]\npath = "/srv"', 'expected names of 1 to 63 of a-z 0-9 _ -, found "A b"'),
        ('[a]\npath = "/srv"\nwriteable = true', "unknown field `writeable`"),
        ("[a", "cannot be read"),
    ],
)
def test_a_wrong_list_keeps_the_agent_from_starting(tmp_path: Path, text: str, message: str) -> None:
    """With the entry's name."""
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(BadSetting, match=message):
        grants_from_environment({"FAIRLEAD_MOUNTS": str(tmp_path / "m.toml")})


def test_an_open_store_of_secrets_is_refused(tmp_path: Path) -> None:
    """With the command that closes it."""
    tmp_path.chmod(0o750)
    with pytest.raises(BadSetting, match=f"chmod 700 {tmp_path}.*found mode 750"):
        grants_from_environment({"FAIRLEAD_SECRETS": str(tmp_path)})
    tmp_path.chmod(0o700)
    assert grants_from_environment({"FAIRLEAD_SECRETS": str(tmp_path)}).secrets == str(tmp_path)
