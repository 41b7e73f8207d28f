"""Metrics in, facts out: named, typed, scoped scalars with unit and provenance. Holds no rule."""
