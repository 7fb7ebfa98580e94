"""Adapter of `port.Bus` for a real nats-server: connection, tail, stream setup and server checks."""
