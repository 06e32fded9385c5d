"""CEL as Kubernetes and Kyverno speak it: text in, callable out.

Import the modules, not this package: `expression`, `environment`, `activation`, `world`. This
package itself must import nothing, so that a run without CEL policies never loads the engine; and
nothing here touches the world, it only calls what a `World` hands in.
"""
