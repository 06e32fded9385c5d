"""Who asks, and what may they do? What they send is not looked at here, but for roles."""
