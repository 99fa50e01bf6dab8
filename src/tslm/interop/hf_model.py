"""What our models have in common as causal language models of transformers: rows, padding, labels, states."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tslm.errors import InputError, UnsupportedError
from tslm.interop.hf_cache import StateCache

try:
    from transformers.generation.utils import GenerationMixin
    from transformers.modeling_outputs import CausalLMOutputWithPast
    from transformers.modeling_utils import PreTrainedModel
except ImportError as error:
    raise UnsupportedError(
        "Hugging Face needs transformers 5; install it with: pip install 'tslm[hf]'"
    ) from error


class TslmModel(PreTrainedModel, GenerationMixin):
    """A model that reads rows of words; what kind it is, its subclass knows."""

    base_model_prefix = ""
    main_input_name = "input_ids"
    _tied_weights_keys = {}  # noqa: RUF012 - what we tie is one parameter
    _is_stateful = True  # no assisted decoding: it would take words back

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    @abstractmethod
    def read_rows(
        self, tokens_BT: Int[Tensor, "B T"], states: Sequence[Any] | None, keep: int
    ) -> tuple[Float[Tensor, "B K V"], list[Any]]:
        """Read texts of equal length.

        Args:
            tokens_BT: the words, none of them padding.
            states: of each text so far; None where they begin.
            keep: how many of the last positions are wanted.

        Returns:
            ln p of every word after each of the last ``keep`` positions, and the state of each text.
        """

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: StateCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Read words; the logits are ln p of every next word.

        Args:
            input_ids: the words that come after those of ``past_key_values``.
            attention_mask: 0 where there is only padding, on whichever side; it may cover the words before, too.
            past_key_values: what was read before; it is brought up to date.
            labels: the same words as ``input_ids``, or −100 where the loss is not to count.
            use_cache: whether to return the states (default: yes, unless training).
            logits_to_keep: only the logits of so many last positions; 0 for all.
            return_dict: False for a plain tuple.
            kwargs: what transformers hands to every model; ``num_items_in_batch`` goes to the loss.
        """
        B, T = input_ids.shape
        if not isinstance(logits_to_keep, int):
            raise InputError("logits_to_keep is a tensor; give the number of last positions")
        keep = min(logits_to_keep, T) or T
        cache = StateCache() if past_key_values is None else past_key_values
        rows: list[Any] = cache.rows or [None] * B
        if len(rows) != B:
            raise InputError(
                f"{B} rows of words, but the cache holds {len(rows)}; give it the batch it is of"
            )
        logits_BKV: Tensor | None = None
        for members, places in _group(input_ids, attention_mask, rows, self.config.eos_token_id):
            states = None if rows[members[0]] is None else [rows[row] for row in members]
            wanted = sum(place >= T - keep for place in places)
            tokens_BT = input_ids[members][:, places]
            some_BKV, after = self.read_rows(tokens_BT, states, wanted)
            for row, state in zip(members, after, strict=True):
                rows[row] = state
            if len(members) == B and wanted == keep:
                logits_BKV = some_BKV
            else:
                if logits_BKV is None:
                    logits_BKV = some_BKV.new_zeros(B, keep, self.config.vocab_size)
                kept = torch.tensor([place - (T - keep) for place in places if place >= T - keep])
                logits_BKV = logits_BKV.index_put((torch.tensor(members)[:, None], kept), some_BKV)
        if logits_BKV is None:
            raise InputError("the attention mask leaves no word to read; give at least one")
        cache.rows, cache.length = rows, cache.length + T
        loss = None
        if labels is not None:
            if keep != T:
                raise InputError("labels need the logits of all positions; leave logits_to_keep out")
            mean_nats = cast(Any, self.loss_function)
            loss = mean_nats(logits=logits_BKV, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        carried = cache if (not self.training if use_cache is None else use_cache) else None
        output = CausalLMOutputWithPast(loss=loss, logits=cast(Any, logits_BKV), past_key_values=carried)
        return output if return_dict is not False else output.to_tuple()


def _group(
    input_ids: Tensor, attention_mask: Tensor | None, rows: Sequence[Any], eos_id: int
) -> list[tuple[list[int], list[int]]]:
    """Return rows that can be read side by side, with the places of their words: those padded alike."""
    B, T = input_ids.shape
    if attention_mask is None:
        mask_BT = np.ones((B, T), np.bool_)
    else:
        # It may cover what was read before, too.
        mask_BT = attention_mask[:, -T:].numpy(force=True).astype(np.bool_)
    first_BT = input_ids.numpy(force=True)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in range(B):
        places = tuple(np.flatnonzero(mask_BT[row]).tolist())
        if places:
            begins = rows[row] is None
            marked = begins and bool(first_BT[row, places[0]] == eos_id)
            groups.setdefault((places, begins, marked), []).append(row)
    return [(members, list(places)) for (places, *_), members in groups.items()]
