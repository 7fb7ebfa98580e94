"""`fairlead doctor` on a node: what keeps it from being one, in one line each, with the command that mends it.

`collect.py` reads all facts in one place; `node/health/checks.py` has the checks, each a pure judgement over `node/health/checks.py`.
"""
