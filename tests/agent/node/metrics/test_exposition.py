"""The agent's metrics page: dcgm-exporter's names and types, our own by Prometheus' rules, read by promtool."""

import csv
import re
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead_agent.devices.port import GpuHealth
from fairlead_agent.devices.simulated import SimulatedDevices
from fairlead_agent.node.metrics.exposition import (
    COUNTED,
    SAMPLED,
    XID,
    Family,
    NodeFacts,
    Owner,
    Sample,
    Xids,
    exposition,
    text,
)
from fairlead_schemas.wire.samples import RunResources, RunUse
from tests.agent.node.metrics.promtool import complaints, needs_promtool

LIST = Path("tests/data/metrics/dcgm_default_counters.csv")


def facts() -> NodeFacts:
    """A played node: its first GPU is held and has seen better days, its last one is lost."""
    devices = SimulatedDevices("n1", "dgx-h100")
    gpus = devices.gpus()
    first, last = gpus[0].uuid, gpus[-1].uuid
    owner = Owner("7", 2, 0, user='a"b\\c', queue="research/vision")
    health = {each.uuid: each for each in devices.health()}
    health[first] = GpuHealth(
        uuid=first,
        pcie_bus_id="00000000:07:00.0",
        pcie_replays=3,
        ecc_volatile_correctable=4,
        ecc_volatile_uncorrectable=1,
        ecc_aggregate_correctable=5,
        ecc_aggregate_uncorrectable=2,
        rows_remapped=9,
        rows_remapped_uncorrectable=2,
        remap_failed=True,
        slowdowns=("hw_thermal",),
        power_held_ns=8,
        heat_held_ns=9,
    )
    return NodeFacts(
        node="n1",
        devices="simulated",
        simulated=True,
        driver_version="550.54.15",
        gpus=gpus,
        samples=[each for each in devices.sample({first: "7.2"}) if each.uuid != last],
        age_s=0.4,
        health=health,
        xids={first: Xids(79, 2)},
        holders={first: [owner]},
        uses=[RunUse(uuid=first, run="7.2", memory_mib=100, utilization_pct=40)],
        runs={"running": 1},
        batches=3,
        owners={"7.2": owner},
        resources=[
            RunResources(
                run="7.2", cpu_ms=1500, memory_mib=2, disk_read_bytes=3, disk_written_bytes=4, network_rx_bytes=5
            )
        ],
    )


def told(page: bytes) -> dict[tuple[str, str], float]:
    """{(name, UUID): value}. Prometheus' own library reads the page, and renames counters by its own rule."""
    samples = [each for family in text_string_to_metric_families(page.decode()) for each in family.samples]
    names = set(re.findall(r"^# TYPE (\S+)", page.decode(), re.MULTILINE))
    return {
        (each.name if each.name in names else each.name.removesuffix("_total"), each.labels.get("UUID", "")): each.value
        for each in samples
    }


def listed() -> dict[str, set[str]]:
    """{name of dcgm-exporter: its types}, of what is no label."""
    found: dict[str, set[str]] = {}
    for row in csv.DictReader(LIST.open()):
        found.setdefault(row["metric"], set()).add(row["prometheus_type"])
    return found


def test_names_and_types_are_those_of_dcgm_exporter() -> None:
    """All that it has on by default but one, and nothing under its names that it does not have."""
    ours = {each.name: each.kind for each in (*SAMPLED, *COUNTED, XID)}
    known = listed()
    assert {name: kind for name, kind in ours.items() if kind not in known.get(name, ())} == {}
    default = {row["metric"] for row in csv.DictReader(LIST.open()) if row["enabled_by_default"] == "yes"}
    assert default - set(ours) == {"DCGM_FI_DEV_VGPU_LICENSE_STATUS", "DCGM_FI_DRIVER_VERSION"}
    assert 'DCGM_FI_DRIVER_VERSION="550.54.15"' in exposition(facts()).decode(), "which is a label there, and here"


def test_units_are_those_of_dcgm_exporter() -> None:
    """Its list says MHz, C, W, mJ, %, MiB and ns; ratios are from 0 to 1."""
    helps = {each.name: each.help for each in (*SAMPLED, *COUNTED)}
    page, checked = told(exposition(facts())), Counter[str]()
    for row in csv.DictReader(LIST.open()):
        name, unit = row["metric"], row["unit"]
        if name in helps and unit == "ratio 0..1":
            ratios = [value for (family, _), value in page.items() if family == name]
            assert ratios and all(0 <= value <= 1 for value in ratios), name
            checked["ratio"] += 1
        elif name in helps and unit and unit != "bytes/s":
            assert f"(in {unit})" in helps[name], name
            checked["unit"] += 1
    assert checked == {"ratio": 8, "unit": 15}


def test_values_are_in_its_units() -> None:
    """Watts from milliwatts, thousandths to ratios, rows apart."""
    known = facts()
    page, sample = told(exposition(known)), known.samples[0]
    uuid = sample.uuid
    assert page["DCGM_FI_DEV_POWER_USAGE", uuid] == (sample.power_mw or 0) / 1000 > 0
    assert page["DCGM_FI_PROF_SM_ACTIVE", uuid] == (sample.sm_permille or 0) / 1000 > 0
    assert page["DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", uuid] == 7
    assert page["DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", uuid] == 2
    assert page["DCGM_FI_DEV_ROW_REMAP_FAILURE", uuid] == 1
    assert page["DCGM_FI_DEV_XID_ERRORS", uuid] == 79
    assert page["fairlead_run_gpu_memory_bytes", uuid] == 100 << 20
    assert (page["fairlead_run_cpu_seconds_total", ""], page["fairlead_run_memory_bytes", ""]) == (1.5, 2 << 20)
    assert ("fairlead_run_network_sent_bytes_total", "") not in page, "which is not known here"


def test_labels_are_dcgms_and_those_of_the_holder() -> None:
    """In its order and spelling; a free GPU has no owner; text is escaped."""
    line = next(line for line in exposition(facts()).decode().splitlines() if line.startswith("DCGM_FI_DEV_GPU_UTIL{"))
    assert re.findall(r'([A-Za-z_]+)="', line) == [
        "gpu",
        "UUID",
        "pci_bus_id",
        "device",
        "modelName",
        "Hostname",
        "DCGM_FI_DRIVER_VERSION",
        "hpc_job",
        "user",
        "queue",
    ]
    assert r'user="a\"b\\c"' in line and 'device="nvidia0"' in line and 'hpc_job="7"' in line
    free = [line for line in exposition(facts()).decode().splitlines() if line.startswith("DCGM_FI_DEV_GPU_UTIL{")][1]
    assert "hpc_job" not in free and "queue" not in free


def test_unknown_values_have_no_series() -> None:
    """A lost GPU is reported as lost and has no measurements; an unknown health is not a zero."""
    known = facts()
    page, last = told(exposition(known)), known.gpus[-1].uuid
    assert page["fairlead_gpu_lost", last] == 1
    assert [name for name, uuid in page if uuid == last and name.startswith("DCGM")] == []
    blank = known._replace(health={uuid: GpuHealth(uuid=uuid) for uuid in known.health})
    assert not [name for name, _ in told(exposition(blank)) if "ECC" in name or "REMAP" in name]


def test_a_node_without_gpus_tells_of_itself() -> None:
    """And only that."""
    page = exposition(NodeFacts(node="n1"))
    assert b"DCGM" not in page
    assert told(page)["fairlead_node_info", ""] == 1


@needs_promtool
def test_promtool_reads_it_and_objects_only_to_dcgms_own_names() -> None:
    """dcgm-exporter's counters do not end in _total, and it has a label `modelName`: boards rely on both. There is no
    complaint about any other name, and none about our own."""
    remarks, all_names = set(complaints(exposition(facts()))), (*SAMPLED, *COUNTED, XID)
    suffix = {
        f'{each.name} counter metrics should have "_total" suffix' for each in all_names if each.kind == "counter"
    }
    label = {f"{each.name} label names should be written in 'snake_case' not 'camelCase'" for each in all_names}
    name = {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER metric name should not include type 'counter'"}
    assert remarks == suffix | label | name


@needs_promtool
def test_promtool_would_say_what_is_wrong() -> None:
    """The check above can fail: on a name of ours that breaks the rules, and on a page that is none."""
    bad = [Family("fairlead_bad_milliseconds", "counter", "Help.", [Sample({}, 1)])]
    assert len(complaints(text(bad))) >= 1
    with pytest.raises(AssertionError):
        complaints(b"fairlead_bad{ 1\n")
