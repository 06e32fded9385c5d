"""CEL as Kubernetes and Kyverno speak it: text in, callable out.

Import the modules, not this package: `expression`, `environment`, `host`. This package itself must
import nothing, so that a run without CEL policies never loads the engine; and nothing here does
I/O: expressions call what `HostFunctions` hands in.
"""
