"""`konvene migrate`: whether groups can change their protocol while they run."""
