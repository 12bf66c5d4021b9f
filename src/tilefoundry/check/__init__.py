"""What holds of a typed program before it runs: inference over HIR, as side tables."""
