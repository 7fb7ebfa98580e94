"""Measures: the log's events and the nodes' samples as rows in DuckDB, and people's SQL over them; says what lies idle.

Start at `schema.py` (what people can ask about), then `warehouse.py` (rows and cursor in one
transaction), `ingest.py` (log and samples into it) and `sql/` (questions, in processes of their
own). `idle/` is the core that decides: it writes the log, and knows nothing of DuckDB. `service.py` wires them. Nothing here blocks
anybody.
"""
