"""`konvene explain`: why groups rebalanced, and what it cost."""
