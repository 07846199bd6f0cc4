"""Invariants of consumer groups."""
