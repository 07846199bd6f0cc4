"""Consumers: fetching, classic members and members of consumer groups (KIP-848)."""
