"""Policies become programs, and programs answer requests. No network, threads or event loops."""
