"""Policies for a run, in integers: idleness, silence of its node, checkpoint notice, launcher."""
