"""The share coordinator (KIP-932): the durable state of share partitions. Pure."""
