"""One cluster in virtual time, by the production cores alone: no bus, no event loop, no faults.

`sim` asks whether the parts hold together whatever goes wrong; this asks what their decisions come to over months of
a trace, and takes minutes for it. Start at `play.py`; `figures.py` says what is measured of what came of it.
"""
