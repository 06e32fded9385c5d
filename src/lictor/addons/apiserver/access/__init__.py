"""Authentication and authorization. Objects are read here only to check roles and bindings."""
