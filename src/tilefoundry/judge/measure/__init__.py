"""``measure``: how long a computation takes, held to its results, its rival and the hardware."""
