"""Makers of inputs: each turns a Source, which is chance with a seed, into something to try."""
