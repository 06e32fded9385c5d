"""What the server knows of kinds: fields, schemas, versions, documents. Nothing is stored here."""
