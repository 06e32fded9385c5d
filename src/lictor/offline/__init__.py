"""The offline world: what files, values and fakes tell where a cluster would be asked.

Nothing here decides about policies: it makes requests, answers lookups, and shows what came out.
"""
