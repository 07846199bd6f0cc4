"""Runs any shard (`shard.contract.Core`): decide, append, replay, wait until durable, reply."""
