"""From an order to a program: its command line and environment, the rendezvous of its ranks, and MPI without ssh. Start at `plan.py`."""
