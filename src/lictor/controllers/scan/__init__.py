"""Existing objects are evaluated in the background. Writes no report itself."""
