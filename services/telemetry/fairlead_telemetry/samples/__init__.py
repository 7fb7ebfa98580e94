"""Measurements of nodes: taken in as columns, kept in the warehouse for a day or so, then in Parquet files. Start at
`sample_store.py`.
"""
