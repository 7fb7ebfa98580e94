"""The only code that knows NATS: the fenced log, inputs, desired state, snapshots, leases.

Start at `port.py` (what a bus can do), then `log.py` (writer and reader), then `service.py`
(the one shell that runs every core). `memory.py` is the in-memory twin that ships with the
package and passes the same contract suite as `nats/adapter.py`.
"""
