"""The transaction coordinators of a broker, and what keeps transactions from hanging."""
