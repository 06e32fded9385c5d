"""Optional parts. They use the tiers below; no tier imports them, nor do they each other."""
