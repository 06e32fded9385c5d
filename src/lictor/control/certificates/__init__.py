"""The certificates of the webhook server. Nothing here reads policies."""
