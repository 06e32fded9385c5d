"""The admission webhook: HTTPS in, verdicts out. No object of the cluster is reconciled here."""
