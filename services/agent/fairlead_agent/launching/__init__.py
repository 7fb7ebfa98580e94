"""How the ranks of a run come to be on several nodes: the words that launchers go by, the meeting before the start, and MPI's
daemons without ssh. Start at `words.py`, then `launching.py`."""
