"""Reasons why a request fits nowhere now, and near misses. Changes nothing."""
