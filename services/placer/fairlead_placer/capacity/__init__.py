"""What nodes have, what they have left, and who finds a place where.

`builds` says what does not change with work, `left` what does (`cuts` and `instances`: of GPUs in MIG mode); `asks` reads
a request, `seats` finds it a place in one node, `rows` and `costs` find the best node of a pool, `index` is one pool and
`pools` are all.
"""
