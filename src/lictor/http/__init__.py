"""HTTP/1.1: one server, one client, and limits on connections. Independent of policies."""
