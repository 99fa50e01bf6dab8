"""The tensor network of one sentence under a TSLM, drawn with its real sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from tslm.drawing.sentence import draw_sentence
from tslm.errors import CorpusError, SizeLimitError
from tslm.inference.chain import require_tslm
from tslm.models.base import LanguageModel
from tslm.tensors.sentence import sentence_network

LONGEST = 24
"""Words; a longer chain is too wide to be read."""


@torch.inference_mode()
def draw_model(model: LanguageModel[Any], sentence: str) -> str:
    """Figure 3. Return the network that gives the logits behind a sentence as SVG; bonds carry their real sizes.

    Raises:
        UnsupportedError: the model is not a TSLM of one layer.
        CorpusError: the sentence has no word.
        SizeLimitError: it has more than 24.
    """
    recurrent, cell = require_tslm(model)
    words = sentence.split()
    if not words:
        raise CorpusError("the sentence has no word; give at least one")
    if len(words) > LONGEST:
        raise SizeLimitError(f"the sentence has {len(words)} words; at most {LONGEST} can be drawn")
    ids_T = torch.from_numpy(recurrent.vocabulary.encode(words).astype(np.int64))
    alphas_TM = F.embedding(ids_T, recurrent.embedding) * math.sqrt(recurrent.config.embedding)
    linear_MR = recurrent.head.linear()
    output_VR = (
        recurrent.output_VM.new_zeros(len(recurrent.vocabulary), cell.rank)  # only its shape is drawn
        if linear_MR is None
        else recurrent.output_VM @ linear_MR
    )
    network = sentence_network(cell.recurrent_weight(), cell.U, output_VR, alphas_TM)
    return draw_sentence(network, words).to_svg(title=sentence)
