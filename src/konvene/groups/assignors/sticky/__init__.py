"""Kafka's sticky task assignor of streams groups."""
