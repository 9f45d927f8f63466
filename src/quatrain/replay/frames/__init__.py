"""Turns of many envs in a ring, sampled as n-step transitions with stacked frames."""
