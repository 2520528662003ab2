"""A checkpoint described from its folder, its hub or the catalogue."""
