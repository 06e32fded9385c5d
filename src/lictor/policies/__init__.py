"""How a change of a policy comes into force: read, tried, compiled, published."""
