"""Pure rules of the agent: the reconciler, its ledger and the steps it orders. No I/O, clock, randomness or bus."""
