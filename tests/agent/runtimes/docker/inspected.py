"""Docker 20.10's recorded answer for a container: the requested HostConfig with all defaults."""

from typing import Any

FILLED_IN: dict[str, Any] = {
    "Binds": None, "ContainerIDFile": "", "PortBindings": None, "AutoRemove": False, "VolumeDriver": "",
    "VolumesFrom": None, "CapAdd": None, "Dns": None, "DnsOptions": None, "DnsSearch": None, "ExtraHosts": None,
    "GroupAdd": None, "Cgroup": "", "Links": None, "PidMode": "", "PublishAllPorts": False, "UTSMode": "", "UsernsMode": "",
    "Runtime": "runc", "ConsoleSize": [0, 0], "Isolation": "", "CpuShares": 0, "CgroupParent": "", "BlkioWeight": 0,
    "BlkioWeightDevice": None, "BlkioDeviceReadBps": None, "BlkioDeviceWriteBps": None, "BlkioDeviceReadIOps": None,
    "BlkioDeviceWriteIOps": None, "CpuPeriod": 0, "CpuQuota": 0, "CpuRealtimePeriod": 0, "CpuRealtimeRuntime": 0,
    "Devices": None, "DeviceCgroupRules": None, "DeviceRequests": None, "KernelMemory": 0, "KernelMemoryTCP": 0,
    "MemoryReservation": 0, "MemorySwappiness": None, "CpuCount": 0, "CpuPercent": 0, "IOMaximumIOps": 0,
    "IOMaximumBandwidth": 0,
    "MaskedPaths": ["/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
                    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"],
    "ReadonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
}  # fmt: skip


def as_created(wanted: dict[str, Any]) -> dict[str, Any]:
    """The answer of GET /containers/<id>/json for a container that was made as asked."""
    mounts = [
        {"Type": "bind", "Source": each["Source"], "Destination": each["Target"], "RW": not each["ReadOnly"]}
        for each in wanted["Mounts"]
    ]
    return {
        "HostConfig": FILLED_IN | wanted,
        "Mounts": mounts,
        "Config": {"User": "", "WorkingDir": "", "Volumes": None},
        "AppArmorProfile": "",
    }
