"""Public traces by sequencer: `python -m bench.fairness`."""
