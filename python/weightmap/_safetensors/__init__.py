"""Checkpoints in the words of the package safetensors."""
