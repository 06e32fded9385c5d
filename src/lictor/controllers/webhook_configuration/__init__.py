"""The webhook configurations: what they contain, who owns them, whether they are answered."""
