"""Share partitions and share coordinators of a broker (KIP-932)."""
