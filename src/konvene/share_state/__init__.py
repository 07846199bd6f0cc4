"""The share coordinator: how far share groups are in each partition, and what became of records (KIP-932)."""
