"""Runs of the simulator: one seed, many in parallel, soak, shrink and what-if."""
