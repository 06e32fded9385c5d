"""Who is notified of new violations, and how; nothing here changes anything but its own memory."""
