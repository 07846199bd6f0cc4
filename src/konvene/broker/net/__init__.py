"""Connections: frames, routing, authorization, response cache, heartbeat purgatory, fetch sessions."""
