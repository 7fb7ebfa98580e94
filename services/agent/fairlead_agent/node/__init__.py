"""The node as a whole: its inventory, its health and its metrics."""
