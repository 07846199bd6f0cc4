"""Connections to a cluster, its metadata, and the settings of a client."""
