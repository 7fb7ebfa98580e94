"""The parts of a running agent around the core: executor, placer link, runs, output, checkpoints and upkeep."""
