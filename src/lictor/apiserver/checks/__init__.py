"""What is wrong with an object of a built-in kind? Nothing is changed here."""
