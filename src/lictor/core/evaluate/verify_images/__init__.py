"""`verifyImages`: verifies who signed the images of a resource.

Registries are read only through `Lookups.registries`, and only for images that a block matches.
"""
