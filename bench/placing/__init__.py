"""The placer's core alone: `python -m bench.placing`."""
