"""The proof that the simulator sees: small bugs, planted one at a time, and which invariant finds each."""
