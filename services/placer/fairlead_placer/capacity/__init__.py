"""What nodes have, what they have left, and who finds a place where.

`builds` says what does not change with work, `left` what does (`cuts` and `instances`: of GPUs in MIG mode); `asks` reads
a request, `seats` finds it a place in one node. `index` is one pool, its nodes in rows of those that are alike (packing/), and
`pools` are all. `choosing` finds the best node for one unit; `gangs` nodes for several, of `kinds`, in the smallest of the
`domains` (`plain_gangs` the short way, for most), by `spreading` over them. `facts` tells people what is left.
"""
