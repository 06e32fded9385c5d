"""What `lictor wasm` does: modules, metadata, requests and manifests of Kubewarden's policies.

Nothing here prints; how an answer of a policy comes about is the business of families/kubewarden.
"""
