"""Ways to run a program on this node, behind one port (`port.py`)."""
