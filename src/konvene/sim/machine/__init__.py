"""A machine without an outside world: an event loop, a network between hosts, and disks, from one seed."""
