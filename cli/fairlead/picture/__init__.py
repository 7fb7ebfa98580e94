"""The cluster as a picture for terminals: facts of `GET /v1/map` in, lines out. Start at `drawing.draw`."""
