"""Checkpoints in stores: what weightmap.remote has."""
