"""Notifier: sends events of the log to the destinations that people have named, by webhook or mail.

A process of its own, in the gateway's package: a person is notified of exactly what `GET /v1/events` would show them now. It writes
nothing to the log and decides nothing. Without rules it holds a connection and no state. `rules.py` is the pure part (which rule is
concerned by which event, and its words); `delivery.py` sends one rule's messages in order; `service.py` wires the process.
"""
