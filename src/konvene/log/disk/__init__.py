"""File systems of the log: the real one, one in memory, an overlay and a read-only view."""
