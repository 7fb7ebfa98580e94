"""The node agent: makes it run on one machine. It decides nothing about the cluster and writes no log.

Start at `core/reconcile.py` (the pure core: what should be against what is), then `core/ledger.py` (what the
journal holds), then `agent.py` (the shell). `runtimes/` starts programs, `devices/` knows GPUs,
`output.py` ships what runs print, `core/outbox.py` delivers numbered reports. `hollow/` plays many nodes.
"""
