"""Settings of queues and pools: in integers, as text, and the file that holds them."""
