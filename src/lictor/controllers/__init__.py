"""Controllers, one package or module per job. Serves no admission request."""
