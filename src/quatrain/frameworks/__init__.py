"""Code shared by the models of a framework: a package per framework, and checks of arrays."""
