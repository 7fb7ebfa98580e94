"""What is decided: commands, time, turns, and the slow look at the order. Called by `decide`."""
