"""Client quotas as values: entities, precedence, rates and token buckets. Time is always an argument."""
