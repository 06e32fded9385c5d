"""Objects that carry a time to live are deleted when it is over."""
