"""The inside of this machine, as the kernel shows it under /sys: CPUs by NUMA node, places on PCIe, NICs.

Everything here reads below a root that it is given, asks nothing else, and takes what it cannot read for not known.
Start at `describe.py`.
"""
