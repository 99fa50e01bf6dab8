"""The heads, by the name that ``[model.head]`` gives them. A new one is one file and one line here."""

from __future__ import annotations

from tslm.models.recurrent.heads.base import CrossEntropy, Head, HeadConfig, WindowLoss
from tslm.models.recurrent.heads.mixture import MixtureConfig
from tslm.models.recurrent.heads.softmax import SoftmaxConfig

HEADS: dict[str, type[HeadConfig]] = {config.kind: config for config in (SoftmaxConfig, MixtureConfig)}

__all__ = ["HEADS", "CrossEntropy", "Head", "HeadConfig", "WindowLoss"]
