"""Fewer random examples by default, so that the suite stays short; set HYPOTHESIS_PROFILE=thorough for many."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("short", max_examples=25, deadline=None)
settings.register_profile("thorough", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))
