"""Packing on a public trace: `python -m bench.openb`."""
