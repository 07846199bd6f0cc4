"""SASL: the mechanisms of both sides, and the authenticator of the broker, as pure machines over bytes."""
