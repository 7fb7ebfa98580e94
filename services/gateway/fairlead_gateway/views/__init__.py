"""Pure folds of the log: jobs, nodes, queues and the outcomes of commands. No clock, no bus, no asyncio.

Start at `fold.py`. Rows are compact; documents of the API are built from them on demand (`routes/documents.py`).
"""
