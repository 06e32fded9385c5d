"""Is a resource what somebody has signed? Manifests that carry their signature in annotations.

Nothing here asks a registry, a transparency log or a cluster: what would need one is an error.
"""

from lictor.evaluate.manifests.rule import compile_manifests

__all__ = ["compile_manifests"]
