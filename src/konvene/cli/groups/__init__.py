"""`konvene groups`: list, describe, reset and delete groups of every type."""
