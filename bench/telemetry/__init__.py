"""Samples through a real server into the warehouse, and on disk. Start at `rows.py`."""
