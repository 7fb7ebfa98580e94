"""Values of the kernel's files, from texts of both versions of control groups."""

from fairlead_agent.linux.counters import Families, blkio, groups, io_stat, keyed, net_dev, process, terminal_name


def stat(pid: int, parent: int, session: int, *, name: str = "sh", ticks: tuple[int, ...] = (3, 2, 10, 5)) -> str:
    """One line of /proc/<pid>/stat, 100 pages."""
    return f"{pid} ({name}) S {parent} 1 {session} 0 -1 4194304 9 9 0 0 {' '.join(map(str, ticks))} 20 0 1 0 77 4096 100 18446744073709551615\n"


def test_a_process_is_read_whatever_its_name_is() -> None:
    """CPU of itself and of children that were waited for; a name may hold brackets and spaces."""
    found = process(stat(7, 1, 7, name="a) b (c"))
    assert found is not None and found == (7, 1, 7, 20, 100, 0)
    assert process("") is None and process("7 (sh) S") is None


def test_a_family_is_all_below_and_all_of_the_session() -> None:
    """Also a child that made a session, and one that was orphaned; not a neighbour."""
    lines = [stat(10, 1, 10), stat(11, 10, 10), stat(12, 11, 12), stat(13, 1, 10), stat(20, 1, 20), stat(21, 20, 20)]
    families = Families(each for line in lines if (each := process(line)))
    assert [each.pid for each in families.of(10)] == [10, 11, 12, 13]
    assert families.of(99) == []


def test_groups_of_both_versions() -> None:
    """Version 2 has one path, under no controller's name."""
    assert groups("4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n0::/x\n") == {
        "memory": "/docker/ab",
        "cpu": "/docker/ab",
        "cpuacct": "/docker/ab",
        "": "/x",
    }
    assert groups("0::/system.slice/docker-ab.scope\n") == {"": "/system.slice/docker-ab.scope"}


def test_counters_are_read_by_name() -> None:
    """Of memory.stat, cpu.stat and /proc/<pid>/io; a value that is no number is left out."""
    assert keyed("inactive_file 4096\nread_bytes: 7\nfull avg10=0.00\n") == {"inactive_file": 4096, "read_bytes": 7}


def test_disks_are_added_up() -> None:
    """The line that totals them is not."""
    assert blkio("8:0 Read 10\n8:0 Write 20\n8:16 Read 1\n8:0 Total 30\nTotal 31\n") == (11, 20)
    assert io_stat("8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=0\n") == (11, 20)


def test_the_loopback_is_no_network() -> None:
    """Bytes in are the first of a line's numbers, bytes out the ninth."""
    text = "Inter-|   Receive\n face |bytes\n    lo: 5 0 0 0 0 0 0 0 5 0\n  eth0: 100 1 0 0 0 0 0 0 70 1\n  eth1:1 1 0 0 0 0 0 0 2 1\n"
    assert net_dev(text) == (101, 72)


def test_a_terminal_has_its_usual_name() -> None:
    """Device numbers as in /proc/<pid>/stat; a console belongs to no job."""
    assert [
        terminal_name(number)
        for number in (136 << 8 | 3, 137 << 8, (300 & 0xFF00) << 12 | 136 << 8 | 44, 0, 4 << 8 | 1)
    ] == ["pts/3", "pts/256", "pts/300", "", ""]
