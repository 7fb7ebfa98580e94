"""Reasons why a request fits nowhere now, near misses, and facts about a pool. Changes nothing."""
