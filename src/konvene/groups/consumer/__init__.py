"""Consumer groups (KIP-848): the coordinator assigns, and members receive their assignment in heartbeat
responses."""
