"""Streams groups (KIP-1071): the coordinator stores the topology, creates its topics and assigns its
tasks."""
