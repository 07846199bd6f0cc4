"""Evidence from descriptions of groups, which `konvene explain follow` polls from live brokers."""
