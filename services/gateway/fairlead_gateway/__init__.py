"""HTTP in, commands out; views folded from the log. Owns no fact and decides nothing.

Start at `views/fold.py` (what is known), `why/dominant_reason.py` (why a job waits), `command_results.py` (how a command reaches
the bus and its answer comes back), `server/app.py` (which routes there are) and `service.py` (what is built, in order).
"""
