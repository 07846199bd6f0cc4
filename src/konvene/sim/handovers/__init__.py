"""Task handovers in streams groups: scenarios with and without warm-up replicas."""
