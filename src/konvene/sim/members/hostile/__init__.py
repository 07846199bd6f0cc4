"""Hostile clients for each kind of group: they send requests that no correct client would send."""
