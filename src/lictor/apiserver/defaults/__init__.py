"""What Kubernetes fills in where nothing was said. Nothing is refused here."""
