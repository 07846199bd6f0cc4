"""Upkeep of warehouses that are written for months: small files merged, unused ones deleted."""
