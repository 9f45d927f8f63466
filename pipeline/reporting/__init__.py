"""The parts of the report: a model's section, the marks on it, speed, and the page around them."""
