"""The ring: `assemble` joins host and ring once, `driver` goes round."""
