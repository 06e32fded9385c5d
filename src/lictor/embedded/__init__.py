"""An API server for people without a cluster and for tests. No policy is judged here: webhooks are
called, as an API server does."""
