"""The contract of task assignors, and what they share: lags, racks and tags."""
