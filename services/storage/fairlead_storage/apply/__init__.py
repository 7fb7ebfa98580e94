"""Effects of events on the storage core's state."""
