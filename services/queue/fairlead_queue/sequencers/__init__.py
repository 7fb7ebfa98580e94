"""Sequencers of a pool, one small file for each way; chosen by name. Start at `fairlead_queue.fairness.ordering.Sequencer`."""
