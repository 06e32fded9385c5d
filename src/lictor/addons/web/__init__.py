"""The web UI: results of reports, read-only."""
