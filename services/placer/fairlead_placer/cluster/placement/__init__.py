"""Search for nodes that fit a unit, a task group or a gang now. Reads the pools, changes nothing."""
