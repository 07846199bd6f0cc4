"""The partitions of a broker: their logs, cleaner, retention, archive and disk threads."""
