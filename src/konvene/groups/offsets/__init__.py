"""Committed offsets of groups of every type: commit, fetch, delete, expiry, and transactional commits."""
