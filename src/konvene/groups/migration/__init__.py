"""Dry run of a change of group protocol: blockers, and what would move."""
