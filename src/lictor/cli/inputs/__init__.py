"""What `apply`, `test`, `explain`, `lint` and `convert` do with files, without a cluster.

Requests are made from files and evaluated by the engine; nothing is printed here.
"""
