"""Broker configs by subject, at Kafka's defaults."""
