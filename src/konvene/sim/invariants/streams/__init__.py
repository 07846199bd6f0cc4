"""Invariants of streams groups."""
