"""Loaders for inference engines: which files, read ahead by whom, on which device."""
