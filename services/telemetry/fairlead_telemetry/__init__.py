"""Measures: the log's events and the nodes' samples as rows in DuckDB, and people's SQL over them.

Start at `schema.py` (what people can ask about), then `warehouse.py` (rows and cursor in one
transaction), `ingest.py` (log and samples into it) and `sql/` (questions, in processes of their
own). `service.py` wires them. Nothing here blocks or decides anything.
"""
