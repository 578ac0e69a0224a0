"""A recipe: schema, loading with file positions, and the plan that it resolves to."""
