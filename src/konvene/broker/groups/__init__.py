"""The group coordinators of a broker, their background work, and the audit of rebalances."""
