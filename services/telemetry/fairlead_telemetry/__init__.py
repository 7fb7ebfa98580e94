"""Telemetry: the log's events and the nodes' samples as rows in DuckDB, people's SQL over them, and detection of idle runs.

Start at `schema/` (tables that people can query), then `warehouse/warehouse.py` (rows and cursor in one transaction),
`ingest.py` (log and samples into it) and `sql/` (queries, in processes of their own). `idle/` is the core that decides:
it writes the log, and knows nothing of DuckDB. `service.py` wires them. Telemetry blocks no other service.
"""
