"""Replay of docs/how-to/backup-and-upgrade.md on a real stack: back up, restore, stop and start again.

After a wanted change: `make test ARGS="tests/system/test_backup_page.py --update-golden"`, and read the difference.
"""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from fairlead.main import main
from fairlead_bus.port import NotAllowed
from fairlead_replay.archive.restore import restore
from fairlead_replay.audit import verify_live
from fairlead_schemas.wire import subjects
from tests.bus.keyed import Keyed
from tests.kit.stopped_cluster import make_cluster
from tests.replay.archive.scenes import LOG
from tests.system.pages import Varies, play, started

pytestmark = [pytest.mark.nats, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "backup-and-upgrade.md"
#: How many commits the start of a cluster takes, its addresses and its processes.
VARIES: Varies = (
    (r"\d+ (commits|events|of them)", r"N \1"),
    (r"sequences 1 to \d+", "sequences 1 to N"),
    (r"(up to|after) sequence \d+", r"\1 sequence N"),
    (r"\((?:\w+ \d+(?:, )?)+\)", "(writers)"),
    (r"berlin\+[0-9a-f]{8}\+\S+", "berlin+KEY"),
    (r"\d+\.\d+s\b", "LONG"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"\b[0-9a-f]{64}\b", "SHA-256"),
    (r"(?m)^\w+ snapshot: equal at \d+\n?", ""),
    (r"(equal at|--at) \d+", r"\1 N"),
    (r"embedded nats \S+|nats-server \S+", "nats"),
    (r"this machine: .*", "this machine"),
    (r"/\S+/(cluster|restored)\b", r"./\1"),
)


def test_the_page_says_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last; no stack is left behind."""
    update = bool(request.config.getoption("--update-golden"))
    # Set by `audit restore` for the server that it starts; undone after the test.
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", "")
    with started(PAGE, tmp_path, monkeypatch, update=update, user="ada") as terminal:
        terminal.varies = VARIES
        try:
            play(terminal, PAGE)
        finally:
            for data in ("cluster", "restored"):
                terminal.run(f"fairlead down --jobs --data ./{data}")


def test_a_restored_store_becomes_that_of_a_server_with_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page says: restored into a directory, moved, renamed. No key may restore into the server itself."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", "")
    make_cluster(tmp_path / "cluster", LOG)
    assert main(["audit", "export", str(tmp_path / "export"), "--data", str(tmp_path / "cluster")]) == 0
    assert main(["audit", "restore", str(tmp_path / "export"), "--data", str(tmp_path / "restored")]) == 0
    keyed = Keyed("n1")
    store = keyed.server.store_dir

    async def refused() -> None:
        await keyed.make_streams()
        for key in ("recovery", "streams", "queue"):
            bus = await keyed.connect(key)
            with pytest.raises(NotAllowed):
                await restore(bus, tmp_path / "export")
            await bus.close()

    async def used() -> None:
        await keyed.make_streams()
        auditor = await keyed.connect("auditor")
        verdict = await verify_live(auditor)
        assert (verdict.ok, verdict.commits) == (True, len(LOG))
        assert (await auditor.state(subjects.LOG)).last == len(LOG)
        await auditor.close()

    try:
        asyncio.run(refused())
        keyed.server.stop()
        shutil.rmtree(store / "jetstream")
        shutil.move(tmp_path / "restored" / "nats" / "store" / "jetstream", store)
        (store / "jetstream" / "$G").rename(store / "jetstream" / "FAIRLEAD")
        keyed.server.start()
        asyncio.run(used())
    finally:
        keyed.close()
