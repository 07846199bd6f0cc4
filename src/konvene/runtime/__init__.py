"""Runs any shard: decide, append, replay, wait until durable, reply."""
