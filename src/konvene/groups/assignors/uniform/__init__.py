"""Kafka's uniform assignor of consumer groups."""
