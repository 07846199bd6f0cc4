"""Dishonest members of each kind of group."""
