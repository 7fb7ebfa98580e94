"""The hosts that tests play: they hear each other, and a cut one does not."""

import subprocess
from pathlib import Path

import pytest

from tests.kit import hosts
from tests.kit.eventually import eventually
from tests.kit.hosts import Hosts

pytestmark = pytest.mark.skipif(bool(hosts.unfit()), reason=hosts.unfit() or "fit")


def hears(here: hosts.Host, there: hosts.Host) -> bool:
    """A connection is refused by a host that is there, and not answered by one that is not."""
    words = (
        "import socket,sys\ns=socket.socket(); s.settimeout(1)\ntry: s.connect((sys.argv[1],9))\n"
        "except ConnectionRefusedError: print('heard')\nexcept OSError: print('silent')"
    )
    return here.run("python3", "-c", words, there.address).strip() == "heard"


def test_a_disconnected_host_is_silent_until_it_is_reconnected() -> None:
    """Both directions, and only this host."""
    with Hosts("a", "b", "c") as world:
        assert hears(world["a"], world["b"])
        world["b"].cut()
        assert not hears(world["a"], world["b"])
        assert not hears(world["b"], world["a"])
        assert hears(world["a"], world["c"])
        world["b"].mend()
        assert hears(world["a"], world["b"])


def test_nothing_stays_behind() -> None:
    """Namespaces and what runs in them are gone."""
    with Hosts("a") as world:
        name = world["a"].name
        sleeper = world["a"].start(["sleep", "1000"])
        comm = Path(f"/proc/{sleeper.pid}/comm")
        eventually(lambda: comm.read_text() == "sleep\n", "it runs there", within_s=30)
    assert sleeper.wait(10) == -9
    assert name not in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
