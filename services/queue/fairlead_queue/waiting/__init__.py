"""Waiting work and its places: jobs, their lines and lanes, and their pools."""
