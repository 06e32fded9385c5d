"""The Common Expression Language as Kubernetes and Kyverno run it, evaluated over plain JSON.

An environment (`kubernetes`, `kyverno`) compiles a text into a program (`program`):

    environment = kubernetes_environment(version=(1, 36))
    program = environment.compile("object.spec.replicas > 3")
    program.evaluate({"object": document}, deadline=clock() + 0.1)

The parser makes a tree (`syntax`), the checker sets its types, the compiler turns it into closures.
"""
