"""Which loop closures are right."""
