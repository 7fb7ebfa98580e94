"""KAI-Scheduler's scale tests: `python -m bench.kai`."""
