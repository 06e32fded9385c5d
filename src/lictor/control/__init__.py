"""Reconcile loops, one per file: from what is there to what should be. Serves no request."""
