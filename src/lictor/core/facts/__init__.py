"""What Kubernetes itself says of its kinds, of one release. No policies and no servers in here."""
