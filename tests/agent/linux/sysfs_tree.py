"""A /sys to read: built from CPUs, and from where devices hang on PCIe."""

from pathlib import Path


class Tree:
    """One machine's /sys below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def numa(self, node: int, cpulist: str) -> "Tree":
        """A NUMA node and its CPUs, as the kernel lists them; "" is one with memory alone."""
        self._write(f"devices/system/node/node{node}/cpulist", cpulist)
        return self

    def cores(self, socket: int, *cores: str) -> "Tree":
        """Cores of a socket, each by the list of its threads: "0,4"."""
        for threads in cores:
            for cpu in threads.split(","):
                self._write(f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", threads)
                self._write(f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", str(socket))
        return self

    def online(self, cpulist: str) -> "Tree":
        """All CPUs, of a kernel without NUMA."""
        self._write("devices/system/cpu/online", cpulist)
        return self

    def device(self, path: str, numa: int, *, nic: str = "", virtual: bool = False) -> str:
        """A device at "pci0000:00/0000:00:01.0/0000:01:00.0"; its address. `nic`: it is that RDMA device."""
        home = self.root / "devices" / path
        self._write(f"devices/{path}/numa_node", str(numa))
        self._link(self.root / "bus/pci/devices" / home.name, home)
        if virtual:
            self._link(home / "physfn", home.parent)
        if nic:
            (home / "infiniband" / nic).mkdir(parents=True)
            self._link(home / "infiniband" / nic / "device", home)
            self._link(self.root / "class/infiniband" / nic, home / "infiniband" / nic)
            self._verbs(nic)
        return home.name

    def soft_nic(self, nic: str) -> None:
        """An RDMA device without hardware."""
        self._write(f"devices/virtual/{nic}/name", nic)
        self._link(self.root / "class/infiniband" / nic, self.root / f"devices/virtual/{nic}")

    def _verbs(self, nic: str) -> None:
        """Its verbs device: numbered as found, whatever the NIC is called."""
        number = len(list((self.root / "class/infiniband_verbs").glob("uverbs*")))
        self._write(f"class/infiniband_verbs/uverbs{number}/ibdev", nic)
        self._write("class/infiniband_verbs/abi_version", "6")
        self._write("class/misc/rdma_cm/dev", "10:58")

    def _write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    @staticmethod
    def _link(link: Path, target: Path) -> None:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def two_sockets(root: Path) -> tuple[Tree, list[str]]:
    """Two sockets of four cores with two threads each, four GPUs and three NICs; the GPUs' addresses.

    Socket 0: a switch with GPU 0 and mlx5_0, below it another switch with GPU 1; a NIC of its own port, mlx5_2.
    Socket 1: GPU 2 and GPU 3 under two ports of one host bridge, and mlx5_10 under another host bridge.
    """
    tree = Tree(root)
    tree.numa(0, "0-3,8-11").cores(0, "0,8", "1,9", "2,10", "3,11")
    tree.numa(1, "4-7,12-15").cores(1, "4,12", "5,13", "6,14", "7,15")
    switch = "pci0000:00/0000:00:01.0/0000:01:00.0"
    gpus = [
        tree.device(f"{switch}/0000:02:00.0/0000:03:00.0", 0),
        tree.device(f"{switch}/0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0", 0),
        tree.device("pci0000:80/0000:80:01.0/0000:81:00.0", 1),
        tree.device("pci0000:80/0000:80:02.0/0000:82:00.0", 1),
    ]
    tree.device(f"{switch}/0000:02:01.0/0000:04:00.0", 0, nic="mlx5_0")
    tree.device("pci0000:00/0000:00:02.0/0000:08:00.0", 0, nic="mlx5_2")
    tree.device("pci0000:c0/0000:c0:01.0/0000:c1:00.0", 1, nic="mlx5_10")
    return tree, gpus
