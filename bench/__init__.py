"""Benchmarks: `python -m bench` measures the rows of docs/reference/performance.md, each with a ceiling of the same run;
`python -m bench.fairness` those of docs/reference/fairness.md, `python -m bench.openb.lists` those of docs/reference/packing.md.

Loads of others have a package each (kai, kueue, openb, fairness), and so have published examples (vectors).

Nothing here is imported by the product. Start at `__main__.py`.
"""
