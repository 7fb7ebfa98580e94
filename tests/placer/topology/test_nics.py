"""The NIC of each GPU: by PCIe level, never by index."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from bench.vectors.allocation import descriptions
from fairlead_placer.topology.affinity import GpuNic, nearest
from fairlead_schemas.wire.resources import PCIE_LEVELS, NodeTopology, PcieLevel


def nics(name: str, gpus: int = 0xFF) -> dict[int, str]:
    """{GPU: name of its NIC}"""
    description = descriptions()[name]
    return {each.gpu: description.nics[each.nic] for each in nearest(description, gpus)}


def test_nic_order_against_gpu_order() -> None:
    """An HGX H100 whose NICs run against its GPUs; NIC0 is near to none."""
    assert nics("hgx-h100-8nic") == {
        0: "NIC8",
        1: "NIC7",
        2: "NIC6",
        3: "NIC5",
        4: "NIC4",
        5: "NIC3",
        6: "NIC2",
        7: "NIC1",
    }
    assert nics("hgx-h100-8nic", 0b1010_0000) == {5: "NIC3", 7: "NIC1"}
    assert {each.level for each in nearest(descriptions()["hgx-h100-8nic"], 0xFF)} == {"PIX"}


def test_compute_nics_among_others() -> None:
    """A DGX H100: NIC1, 2, 7 and 8 are on no GPU's switch."""
    assert list(nics("dgx-h100").values()) == ["NIC0", "NIC3", "NIC4", "NIC5", "NIC6", "NIC9", "NIC10", "NIC11"]


def test_gpus_that_are_equally_near_share_little() -> None:
    """A DGX A100 has two GPUs and two NICs on a switch; a DGX-2 one NIC for two GPUs."""
    assert list(nics("dgx-a100").values()) == [f"mlx5_{nic}" for nic in (0, 1, 2, 3, 6, 7, 8, 9)]
    assert nics("dgx-a100", 0b10) == {1: "mlx5_0"}
    assert list(nics("dgx2-v100", 0b1111).values()) == ["mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1"]
    assert nics("rtx4090x8-pcie", 0b1100_0000) == {6: "NIC0", 7: "NIC1"}


def test_one_makes_room_for_another() -> None:
    """The second is near to one NIC only, which the first would have had."""
    description = NodeTopology(numa=(0, 0), nics=("a", "b"), nic_levels=(("PIX", "PIX"), ("PIX", "SYS")))
    assert nearest(description, 0b11) == (GpuNic(0, 1, "PIX"), GpuNic(1, 0, "PIX"))


def test_levels_that_are_not_known() -> None:
    """Are farther than any; without any there are no NICs."""
    description = NodeTopology(numa=(0,), nics=("a", "b"), nic_levels=(("", "SYS"),))
    assert nearest(description, 1) == (GpuNic(0, 1, "SYS"),)
    assert nearest(msgspec.structs.replace(description, nic_levels=()), 1) == ()
    assert nearest(descriptions()["dgx1-v100"], 0xFF) == ()


@given(st.data())
def test_each_gpu_has_one_of_its_nearest_and_sharing_is_least(data: st.DataObject) -> None:
    """For any levels: nearest, and of the first of each NIC as many as a maximum matching has."""
    gpus, count = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    level = st.sampled_from([level for level in PCIE_LEVELS if level != "X"])
    rows: list[tuple[PcieLevel, ...]] = [
        tuple(data.draw(st.lists(level, min_size=count, max_size=count))) for _ in range(gpus)
    ]  # pyright: ignore[reportAssignmentType] -- drawn from LEVELS
    description = NodeTopology(numa=(0,) * gpus, nics=tuple(map(str, range(count))), nic_levels=tuple(rows))
    found = nearest(description, (1 << gpus) - 1)

    assert [each.gpu for each in found] == list(range(gpus))
    for each in found:
        assert each.level == rows[each.gpu][each.nic] == min(rows[each.gpu], key=PCIE_LEVELS.index)
    assert len({each.nic for each in found}) == most_distinct(rows)


def most_distinct(rows: list[tuple[PcieLevel, ...]]) -> int:
    """The most different NICs that can be had, by trying all."""
    used = {frozenset[int]()}
    for row in rows:
        near = [nic for nic, level in enumerate(row) if level == min(row, key=PCIE_LEVELS.index)]
        used = {each | {nic} for each in used for nic in near}
    return max(map(len, used))
