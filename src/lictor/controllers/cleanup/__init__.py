"""Policies that delete objects on a schedule."""
