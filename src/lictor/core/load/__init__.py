"""The way in: YAML files, test files and API objects become the model. Nothing is judged here."""
