"""Share groups (KIP-932): members that consume the same partitions concurrently, record by record."""
