"""Sign-on with identity providers: the sign-on file, ID tokens, the code flow, device sign-ins, exchanged job tokens."""
