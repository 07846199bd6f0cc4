"""The simulator: the code that serves, under seeded faults, with every invariant checked after every step.

Two levels run the same production code. At the first the pure cores are stepped as plain calls (`world`);
at the second a whole broker, with its connections, its coordinators and its log, runs on an event loop that
has no outside world (`loop`, `network`, `disk`, `whole`). The same seed gives the same trace to the byte.
"""
