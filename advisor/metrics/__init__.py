"""`Trace` in, small tables and scalars out. Pure functions that know no threshold."""
