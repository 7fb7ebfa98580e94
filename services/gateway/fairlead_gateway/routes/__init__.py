"""HTTP routes by resource, and the request bodies, checks and command client that they share."""
