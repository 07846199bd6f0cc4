"""Assignors of share groups."""
