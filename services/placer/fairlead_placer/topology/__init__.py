"""Inside one node: which GPUs, CPUs and NICs an attempt gets there. Knows no jobs, no events and no other nodes.

Start at `device_selection.py` (the whole decision), then `gpu_choice.py` (which GPUs) and `gpu_topology.py` (what an agent says of
its node). A set of GPUs or CPUs is an int with a bit per member; everything is integers, and equal questions have
equal answers.
"""
