"""The simulator: runs the production code under seeded faults and checks every invariant after every step.

It has two levels. At level 1 the coordinators' shards run on an event queue in virtual time (`world`). At
level 2 a whole broker runs with its connections, its coordinators and its log on a simulated event loop,
network and disk (`machine`, `end_to_end`). The same seed gives the same trace, byte for byte.
"""
