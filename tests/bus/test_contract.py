"""The contract of a bus (contract.py) against the in-memory twin and a real nats-server."""

from tests.bus.contract import *  # noqa: F403 -- each promise is a test here
