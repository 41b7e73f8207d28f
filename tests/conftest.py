"""What holds for every test."""

from hypothesis import settings

# Speed is measured by benchmarks/; a busy machine must not fail a property.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
