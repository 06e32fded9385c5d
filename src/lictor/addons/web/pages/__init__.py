"""What the page looks like: records become HTML. Nothing is read, watched or decided here."""
