"""The local stack: nats-server, every service and local nodes as processes of one machine. Start at `local.py`."""
