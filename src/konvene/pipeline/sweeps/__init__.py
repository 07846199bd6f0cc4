"""Tables of many simulated runs."""
