"""Gold tables: rebalances, ownership, lag, health and deliveries, one log partition at a time."""
