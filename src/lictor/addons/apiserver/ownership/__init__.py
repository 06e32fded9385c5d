"""Server-side apply: who owns which field, and what becomes of an object. Nothing is kept here."""
