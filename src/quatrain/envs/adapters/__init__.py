"""Environments under the Gymnasium API; importing this package registers their ids."""

from quatrain.envs.adapters.registration import IDS, register

__all__ = ["IDS", "register"]

register()
