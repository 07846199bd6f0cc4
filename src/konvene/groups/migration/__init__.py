"""Dry run of an online protocol migration: what blocks it, and how assignments would change."""
