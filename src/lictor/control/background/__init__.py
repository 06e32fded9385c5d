"""Work that admissions and policy changes cause later: update requests and their queue."""
