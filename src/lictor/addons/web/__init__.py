"""The page: what reports say, for people; read-only."""
