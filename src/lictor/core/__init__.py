"""Compiles policies to programs and evaluates requests with them. No network, threads or loops."""
