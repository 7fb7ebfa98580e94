"""What waits and where: jobs, their lines and lanes, and the pools they are in."""
