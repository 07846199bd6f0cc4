"""Heartbeating members of groups: the state machine and the task that runs it."""
