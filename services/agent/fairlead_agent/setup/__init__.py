"""Installation of a node on a machine: directories, settings, the bus key and two systemd units.

`layout.py` describes the target state as data; `install.py` creates it and reports each thing that it did.
"""
