"""Published examples: `python -m bench.vectors FILE…`."""
