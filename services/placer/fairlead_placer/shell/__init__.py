"""I/O of the placer: publishes desired state, receives reports and heartbeats from nodes, relays rank messages."""
