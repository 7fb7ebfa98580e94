"""Files in the agent's directory that outlive its process: the journal, and the lease and the report shared with the guard."""
