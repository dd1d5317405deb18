"""swarepro: reproduce, locate and prove failures of hybrid sliding-window KV caches."""

__version__ = "0.1.0"
