"""Laws run without a deadline: shared machines make single examples slow."""

from hypothesis import settings

settings.register_profile("laws", deadline=None)
settings.load_profile("laws")
