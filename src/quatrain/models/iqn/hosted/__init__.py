"""The model in an environment of a user (envs/host): the same modules as beside this folder."""
