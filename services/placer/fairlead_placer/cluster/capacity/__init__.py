"""Capacity of nodes, what they have left, and the search for places.

`builds` holds what does not change with work, `left` what does (`cuts` and `instances`: of GPUs in MIG mode);
`asks` reads a request, `seats` finds it a place in one node. `index` is one pool, its nodes in rows of like nodes
(packing/), and `pools` are all. `choosing` finds the best node for one unit; `gangs` nodes for several, of `kinds`,
in the smallest of the `domains` (`plain_gangs` the short way, for most), by `spreading` over them. `facts` reports
to people what is left.
"""
