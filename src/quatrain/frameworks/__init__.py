"""What models of one framework share: a package per framework, and what both hold a learner's arrays against."""
