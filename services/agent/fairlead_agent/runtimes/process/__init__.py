"""Runs as processes of this machine. `runtime.py` is the port's adapter and the client of the spawner, a program of its own."""
