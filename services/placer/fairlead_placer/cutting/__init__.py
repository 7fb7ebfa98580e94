"""Repartition of GPUs while the cluster runs: for which job, which GPU, the order to its agent, and the result.

The arithmetic is in the room `mig/`. A plan is an event that keeps back what it changes; a placement on the new
instances waits until the agent has reported them. Start at `planning.py`.
"""
