"""Hollow nodes: many played nodes on the real bus over one connection, with virtual run times.

For scale (Kubernetes' kubemark idea). Their journal is memory: when the program ends, its nodes are gone, and
they come back under new incarnations. They do not fence themselves. Start at `fleet.py`.
"""
