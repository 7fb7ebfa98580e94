"""`fairlead doctor` on a node: what keeps it from being one, in one line each, with the command that mends it.

`reading.py` reads all facts in one place; `judging.py` has the checks, each a pure judgement over `facts.py`.
"""
