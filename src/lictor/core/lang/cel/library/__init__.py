"""The functions of the language, of Kubernetes and of Kyverno, one table per library."""
