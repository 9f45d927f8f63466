"""tides: the height of the water in a harbour through the day, as a sum of harmonics, from noisy readings."""
