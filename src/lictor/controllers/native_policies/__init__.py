"""Kubernetes admission policies that are generated from lictor's policies."""
