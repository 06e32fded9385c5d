"""Kubernetes' own admission policies that are made from policies of lictor."""
