"""Kubewarden's policies: records, compiler, host calls and validation. No network, no disk."""
