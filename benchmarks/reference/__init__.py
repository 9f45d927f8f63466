"""Plain, slow versions and published figures that the project is measured against."""
