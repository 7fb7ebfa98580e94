"""Ways to know the GPUs of this node, behind one port (`port.py`)."""
