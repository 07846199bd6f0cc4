"""`konvene sim`: the simulator from the command line."""
