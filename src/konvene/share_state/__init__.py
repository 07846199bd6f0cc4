"""The share coordinator (KIP-932): stores the durable state of share partitions. Pure: no clock, no I/O."""
