"""Who is told of new violations, and how; nothing here changes the cluster but its own memory."""
