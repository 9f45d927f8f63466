"""tides: learns the height of the water in a harbour as a sum of harmonics, from readings."""
