"""How many examples a campaign draws: few by default, thousands on demand.

``TILEFOUNDRY_CAMPAIGN=1`` runs the long profile.
"""

import os

from hypothesis import HealthCheck, settings

LONG = bool(os.environ.get("TILEFOUNDRY_CAMPAIGN"))


def campaign(few: int, many: int = 3000) -> settings:
    """Settings of one property: ``few`` examples, ``many`` in the long profile."""
    return settings(
        max_examples=many if LONG else few,
        deadline=None,
        derandomize=not LONG,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
