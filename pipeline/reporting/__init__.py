"""The parts of the report: a model's section, the marks on it, and the page around them."""
