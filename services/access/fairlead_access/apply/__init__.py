"""Effects of events on the access core's state."""
