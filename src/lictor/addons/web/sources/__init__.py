"""Where what the page shows comes from: reports in clusters, and in files. Nothing is written."""
