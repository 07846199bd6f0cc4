"""Consumer groups (KIP-848): the coordinator assigns, members are told by their heartbeats."""
