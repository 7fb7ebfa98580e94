"""The access service: principals, roles, groups, tokens and sign-in sessions. A core and a writer of the log of its own."""
