"""Evidence from brokers' application logs: lines of the group coordinator, applied to rebalances."""
