"""Objects as rows and columns, for `kubectl get`. Nothing is read from the store here."""
