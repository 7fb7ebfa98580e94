"""The verbs of the command line, one small file per family. Wiring is in `fairlead/main.py`."""
