"""The highly available task assignor: a stateful task moves when its copy has caught up (KIP-441)."""
