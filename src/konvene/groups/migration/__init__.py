"""Dry run of an online protocol migration: its blockers, and how assignments would change."""
