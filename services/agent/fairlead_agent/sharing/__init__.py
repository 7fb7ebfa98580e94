"""Several runs on one GPU: what each may use, who uses more, and what comes of it. Start at `guard.py`."""
