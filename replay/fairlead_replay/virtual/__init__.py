"""Cluster in virtual time, by the production cores alone: no bus, no event loop, no faults.

`sim` tests whether the parts hold together under any fault. This package shows the effect of their decisions
over months of a trace, and takes minutes for it. Start at `play.py`; `figures.py` defines the measurements of a
played trace.
"""
