"""`verifyImages`: who signed the images of a resource, and which images are meant by it.

No registry is asked but through `Lookups.registries`, and none for images that no block names.
"""
