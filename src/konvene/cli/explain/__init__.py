"""`konvene explain`: the causes and costs of rebalances, from the logs of a broker."""
