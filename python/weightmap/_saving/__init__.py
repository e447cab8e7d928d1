"""What writes checkpoints from Python's objects."""
