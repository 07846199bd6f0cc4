"""Administration: topics, configs, groups, offsets and transactions."""
