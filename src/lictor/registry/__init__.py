"""OCI registries: images, signatures and attestations as a registry, or a folder, keeps them."""
