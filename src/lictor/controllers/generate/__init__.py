"""Objects that generate rules create, keep in sync and delete. Asks for no admission."""
