"""Work on a model that is neither a stage nor a study: identification of own data, profiles."""
