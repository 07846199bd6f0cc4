"""The share coordinator: how far share groups are in each partition, and what is delivered there (KIP-932)."""
