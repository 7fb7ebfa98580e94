"""What makes a machine a node: directories, settings, the bus key and two systemd units.

`layout.py` says what there should be, as data; `doing.py` makes it so and says each thing that it did.
"""
