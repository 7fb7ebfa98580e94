"""What events mean for the state. Called by `evolve`."""
