"""Facts about Kubernetes' kinds, of one release. No policies and no servers."""
