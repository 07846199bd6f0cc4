"""TLS: keys and certificates from Kafka's settings, contexts made of them, and principals of certificates."""
