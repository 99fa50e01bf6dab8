"""The tensor network of one sentence under a trained model, drawn with its real sizes."""

from __future__ import annotations

from typing import Any

from tslm.drawing.sentence import draw_sentence
from tslm.errors import SizeLimitError
from tslm.inference.network import build_network
from tslm.models.base import LanguageModel

LONGEST = 24
"""Words; a longer chain is too wide to be read."""


def draw_model(model: LanguageModel[Any], sentence: str) -> str:
    """Figure 3. Return the network that gives the logits behind a sentence as SVG; bonds carry their real sizes.

    What is drawn is ``build_network``, which contracts to the model's own logits: the ``<eos>`` that begins every text,
    the biases as a constant coordinate, and what reads the state are all in it.

    Raises:
        UnsupportedError: the model is no chain of one layer.
        CorpusError: the sentence has no word.
        SizeLimitError: it has more than 24.
    """
    words = model.rule.split(sentence)
    if len(words) > LONGEST:
        raise SizeLimitError(f"the sentence has {len(words)} words; at most {LONGEST} can be drawn")
    found = build_network(model, sentence)
    return draw_sentence(found.network, found.words, lifted=True, notes=found.notes).to_svg(title=sentence)
