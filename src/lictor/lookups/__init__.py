"""What policies look up, answered by a live cluster, its services and registries."""
