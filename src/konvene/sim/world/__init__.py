"""The simulated world of one group coordinator: members, network, log and faults, in virtual time."""
