"""Text to integers and back: ids, quantities, hardware names, selectors and taints; and the error collector. Imports no other folder."""
