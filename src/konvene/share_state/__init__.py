"""The share coordinator: how far share groups are in each partition, and what they were delivered (KIP-932)."""
