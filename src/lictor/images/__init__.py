"""OCI registries: images, signatures and attestations; modules of policies, wherever they are."""
