"""weightmap.ray: the copies of a remote checkpoint on the nodes of a Ray cluster."""
