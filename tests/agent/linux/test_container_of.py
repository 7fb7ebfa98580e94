"""The container of a process, by its control groups."""

import pytest

from fairlead_agent.linux.processes import container_in, container_of

ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("cgroups", "container"),
    [
        (f"12:memory:/docker/{ID}\n11:cpu,cpuacct:/docker/{ID}\n", ID),
        (f"0::/system.slice/docker-{ID}.scope\n", ID),
        (f"0::/docker/{ID}\n", ID),
        (f"0::/docker/{ID}/init.scope\n", ID),
        ("0::/user.slice/user-0.slice/session-1.scope\n", ""),
        (f"0::/machine/{ID}0\n", ""),
        ("", ""),
    ],
    ids=["version 1", "systemd", "cgroupfs", "below it", "a session", "another number", "nothing"],
)
def test_the_container_is_named_by_its_id(cgroups: str, container: str) -> None:
    """Under both versions and both drivers."""
    assert container_in(cgroups) == container


def test_a_process_that_ended_is_in_no_container() -> None:
    """A process that never existed is in none."""
    assert container_of(2**22 + 1) == ""
