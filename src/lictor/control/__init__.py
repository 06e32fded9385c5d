"""Reconcile loops, one per file: from what is there to what should be. No request is served here."""
