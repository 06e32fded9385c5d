"""Who signed this image, and what do they attest?

`find_*` lists what lies beside an image, as it is; `verify_*` says who made one of these, or
refuses it with SignatureRefusedError. What is trusted is told by the caller; nothing is fetched
but through `ports.Registries`.
"""
