"""The whole cluster on one thread in virtual time, under faults that one seed decides.

    python -m fairlead_replay.sim --seeds 1..200

The cores, the service shell and the agent's reconcile core are the ones that run live; simulated are the
clock (`loop.py`), the network and the server (`bus.py` around the in-memory twin), machines with their
devices (`machine.py`), what they say of runs that lie idle (`idleness.py`), and the people who submit (`workload.py`). `faults.py` draws everything that goes
wrong from one `random.Random(seed)`, `context.py` has what all parts of a world share, `processes.py` does it to the processes, `faults.py` to decisions, `invariants.py` judges every
commit, `world.py` ties it together.
The same seed gives the same log, byte for byte. Start at `world.run_seed`.
"""
