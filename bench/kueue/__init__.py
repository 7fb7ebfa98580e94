"""Kueue's published baseline load: `python -m bench.kueue`."""
