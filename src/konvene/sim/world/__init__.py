"""The simulated world of one coordinator: members, network, log and faults in virtual time."""
