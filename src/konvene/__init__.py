"""Kafka's group coordination in pure Python: a broker, a client, a simulator and explanations."""

__version__ = "0.1.0"
