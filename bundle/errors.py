"""What can be wrong with a bundle, or with what is to go into one."""

from __future__ import annotations


class BundleError(Exception):
    """A bundle that cannot be read or made; says which, why, and what to do. Nothing is unpacked of it."""


class NoBundleError(BundleError):
    """Nothing is at a path, or nothing that could be meant."""
