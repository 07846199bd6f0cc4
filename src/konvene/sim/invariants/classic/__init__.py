"""Invariants of classic groups."""
