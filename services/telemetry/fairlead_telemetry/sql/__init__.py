"""People's SQL: a bounded line in front of obedient processes, each over a copy that holds only what its caller may see.

Start at `desk.Desk.ask`. `allowed_statements.py` says which statements are read at all, `visibility.py` which rows who sees, `member_copy.py` makes the
file with these rows (those of filed days: `parquet_partitions.py`), `copies.py` keeps such files fresh, `worker_process.py` holds one worker, `worker.py` is what runs in it, and
`formats.py` spells answers.
"""
