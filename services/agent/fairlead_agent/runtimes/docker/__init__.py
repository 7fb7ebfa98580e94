"""Runs as containers of a Docker engine. `runtime.py` is the port's adapter; every other file is one thing that it needs of an engine."""
