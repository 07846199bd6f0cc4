"""Committed offsets of groups of every kind: who may commit, what is remembered, what a fetch is told."""
