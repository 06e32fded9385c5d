"""Reports in the cluster: written, brought up to date and removed. Evaluates no policy."""
