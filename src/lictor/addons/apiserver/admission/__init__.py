"""What Kubernetes does with a request between its authorization and the store. Nothing is stored
here."""
