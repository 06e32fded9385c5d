"""OCI registries: images, signatures and attestations; and the modules of Wasm policies."""
