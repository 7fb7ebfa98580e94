"""The DuckDB file: its tables, its one writer, and its recovery. Start at `warehouse.py`."""
