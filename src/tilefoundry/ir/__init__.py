"""The one IR: dtypes, extents, meshes, types, nodes and their printing."""
