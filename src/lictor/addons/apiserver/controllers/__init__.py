"""Loops that reconcile objects with their specs. They write through the loopback client only."""
