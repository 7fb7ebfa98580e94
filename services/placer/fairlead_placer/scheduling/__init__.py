"""Scheduling actions, one file each: allocate, backfill, reserve, preempt, repartition, defragment."""
