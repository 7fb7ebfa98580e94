"""Documents as of any moment: keyframes of the gateway's views, and the process that answers the gateway about the past.

Start at `service.py`.
"""
