"""XIDs in the kernel's log, in the forms in which drivers have written them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_agent.linux.kernel_log import KernelLog, XidLine, gpus_by_address, pci_address, record_of, xid_in

#: (a line as a driver writes it, what it says). Forms of NVIDIA's XID guide and of public test data of gpud.
VECTORS: list[tuple[str, tuple[str, int, int]]] = [
    ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.", ("0000:3b:00", 79, 1234)),
    ("NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", ("0000:05:00", 79, 0)),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", ("0000:03:00", 14, 0)),
    ("NVRM: Xid (PCI:0000:9b:00): 63, pid='7', name=x, Row Remapper: New row marked for remapping", ("0000:9b:00", 63, 7)),
    ("NVRM: Xid (PCI:0000:05:00 GPU-I:02): 31, pid=2273, Ch 00000008, MMU Fault", ("0000:05:00", 31, 2273)),
    ("NVRM: Xid (PCI:0000:05:00 GPU-I:02 GPU-CI:01): 94, Contained: SM", ("0000:05:00", 94, 0)),
    ("NVRM: Xid (PCI:0018:01:00): 119, pid=1, Timeout waiting for RPC from GSP!", ("0018:01:00", 119, 1)),
    ("[ 1234.5] NVRM: Xid (PCI:0000:AB:00): 48, An uncorrectable double bit error", ("0000:ab:00", 48, 0)),
    ("NVRM: Xid (PCI:00000000:3B:00.0): 13, Graphics SM Warp Exception", ("0000:3b:00", 13, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("line", "said"), VECTORS, ids=[str(said[1]) + said[0] for _, said in VECTORS])
def test_a_drivers_line_is_understood(line: str, said: tuple[str, int, int]) -> None:
    """The GPU's address, the number, the process where one is named; the line itself is the evidence."""
    found = xid_in(line)
    assert found is not None
    assert (found.pci, found.code, found.pid) == said
    assert found.evidence in line and found.evidence.startswith("NVRM: Xid")


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06",
        "usb 1-1: Xid (PCI:0000:3b:00): 79",
        "",
        "NVRM: Xid (PCI:0000:3b:00): soon",
        "NVRM: Xid (PCI:zz): 79",
        "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed!",
    ],
)
def test_other_lines_are_ignored(line: str) -> None:
    """No GPU is taken out of use for them."""
    assert xid_in(line) is None


@given(st.text(max_size=300))
def test_no_text_crashes_the_parser_and_evidence_is_harmless(text: str) -> None:
    """For any text that a driver may write."""
    found = xid_in(f"NVRM: Xid (PCI:0000:3b:00): 79, {text}")
    assert isinstance(found, XidLine)
    assert found.evidence.isprintable() and len(found.evidence) <= 300
    xid_in(text)
    record_of(text.encode())


def test_records_carry_their_number() -> None:
    """As /dev/kmsg gives them; continuation lines are left out."""
    record = record_of(b"4,812,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, x\n SUBSYSTEM=pci\n")
    assert record is not None
    assert (record.sequence, record.text) == (812, "NVRM: Xid (PCI:0000:3b:00): 79, x")
    assert record_of(b"no record") is None


def test_addresses_are_compared_in_one_form() -> None:
    """With or without a function, four or eight digits of domain."""
    assert {pci_address(each) for each in ("00000000:3B:00.0", "0000:3b:00", "0000:3b:00.0")} == {"0000:3b:00"}


def test_gpus_are_found_under_proc(tmp_path: Path) -> None:
    """As the driver lists them; what cannot be read is left out."""
    for name, text in (
        ("0000:3b:00.0", "Model: \t A100\nGPU UUID: \t GPU-52c1bb0e-1\n"),
        ("0000:5e:00.0", "GPU UUID: ??\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "information").write_text(text)
    assert gpus_by_address(tmp_path) == {"0000:3b:00": "GPU-52c1bb0e-1"}
    assert gpus_by_address(tmp_path / "none") == {}


def test_a_log_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """And has no XIDs."""
    log = KernelLog(path=tmp_path / "none")
    assert log.new() == [] and "No such file" in log.unreadable
    log.close()


def test_this_machines_log_is_read_once() -> None:
    """From a number on, or from now on; what was read is not read again."""
    log = KernelLog(-1)
    if log.unreadable:
        pytest.skip(f"the kernel's log cannot be read here: {log.unreadable}")
    log.new()
    newest = log.sequence
    log.new()
    assert log.sequence >= newest
    later = KernelLog(None)
    assert later.new() == []
    log.close()
    later.close()
