"""MIG: how one GPU is cut into instances, which cuts are legal, and which of them to choose.

Pure arithmetic on bit masks over a GPU's memory slices; knows neither nodes nor jobs, and changes nothing. Start at
`shapes.py` (the geometry), then `models.py` (which GPU has which), `layouts.py` (what is legal), `remains.py` (what still
fits), `demand.py` (what that is worth), `choice.py` (where a request goes), `plans.py` (cutting anew what is free).
"""
