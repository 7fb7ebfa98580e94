"""Benchmarks: `python -m bench` measures the rows of docs/performance.md, each beside a ceiling of the same run;
`python -m bench.fairness` those of docs/fairness.md.

Nothing here is imported by the product. Start at `__main__.py`.
"""
