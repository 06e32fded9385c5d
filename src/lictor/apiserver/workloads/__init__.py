"""Controllers that make Pods of Deployments, Jobs and the like; they come in as any client does."""
