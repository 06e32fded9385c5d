"""Objects that generate rules create, synchronize and delete. No admission requests."""
