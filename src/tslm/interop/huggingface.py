"""Hugging Face transformers: our models as its causal language models, opened by its Auto classes.

Importing this module registers the classes; nothing in a folder is executed. ``tslm.interop.hf_folder`` writes the
folders. A text begins as if an ``<eos>`` had just been read; where one is given at the very beginning of a text, it is
that one.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tslm.corpus.vocabulary import EOS, Vocabulary
from tslm.errors import RunError, UnsupportedError
from tslm.interop.hf_model import TslmModel
from tslm.interop.hf_tokenizer import TslmFastTokenizer, TslmTokenizer, WritesByRule
from tslm.models.arrays import WEIGHTS
from tslm.models.base import LanguageModel
from tslm.models.parts import PARTS
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.model import RecurrentModel
from tslm.models.registry import read_model
from tslm.runs.folder import locked_run, prepare_folder
from tslm.runs.run import Run, open_run
from tslm.runs.summary import SUMMARY
from tslm.seals import sealed

try:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers import initialization as init
    from transformers.configuration_utils import PreTrainedConfig
    from transformers.pipelines import PIPELINE_REGISTRY
    from transformers.pipelines.text_generation import TextGenerationPipeline
except ImportError as error:
    raise UnsupportedError(
        "Hugging Face needs transformers 5; install it with: pip install 'tslm[hf]'"
    ) from error

RUN_FOLDER = "run"
"""The run folder inside a folder of a model that is no recurrent one."""


class TslmConfig(PreTrainedConfig):
    """``config.json`` of a recurrent model."""

    model_type = "tslm"
    # transformers makes these dataclasses that take any keyword; the tests' type checker would refuse what is no field.
    __no_type_check__ = True

    vocab_size: int = 1
    recipe: dict[str, Any] | None = None
    """The recipe's tables; ``model`` says how the model is built, the others how it was trained."""
    summary: dict[str, Any] | None = None
    """What came of the run."""
    weights_sha256: str | None = None
    """Of the weights that the summary is about."""
    tie_word_embeddings: bool = False
    """What we tie is one array from the beginning, which transformers need not know."""


class TslmRunConfig(TslmConfig):
    """``config.json`` of any other model, whose numbers stay in a run folder."""

    model_type = "tslm-run"


class TslmForCausalLM(TslmModel):
    """A recurrent model, whatever its cell and head; it can be trained further."""

    config_class = TslmConfig

    def __init__(self, config: TslmConfig) -> None:
        super().__init__(config)
        kind, shape = read_model((config.recipe or {}).get("model", {}))
        if not isinstance(shape, RecurrentConfig):
            raise RunError(f"config.json is of a model of kind {kind!r}; expected a recurrent one")
        # The words are the tokenizer's; the model needs only how many there are and which one ends a line.
        words = [f"<{number}>" for number in range(config.vocab_size)]
        words[cast(int, config.eos_token_id)] = EOS
        self.language_model = RecurrentModel(shape, Vocabulary(tuple(words)))
        self.post_init()

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Open a folder that ``tslm export hf`` or ``save_pretrained`` wrote."""
        opened = super().from_pretrained(*args, **kwargs)
        model = cast(TslmForCausalLM, opened[0] if isinstance(opened, tuple) else opened)
        for layer in range(len(model.language_model.cells)):
            model.language_model.cell(layer).settle()
        return opened

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Draw what a file does not hold as for a new model; what is loaded is marked and stays."""
        if isinstance(module, RecurrentModel):
            with torch.device("cpu"):
                new = RecurrentModel(module.config, module.vocabulary)
            for name, parameter in new.named_parameters():
                init.copy_(module.get_parameter(name), parameter)
            for name, buffer in new.named_buffers():
                init.copy_(module.get_buffer(name), buffer)

    def read_rows(
        self, tokens_BT: Int[Tensor, "B T"], states: Sequence[Any] | None, keep: int
    ) -> tuple[Float[Tensor, "B K V"], list[Any]]:
        """Read the texts side by side."""
        model = self.language_model
        tokens_TB = tokens_BT.t()
        if states is None:
            carried = model.begin(len(tokens_BT))
            if int(tokens_BT[0, 0]) != self.config.eos_token_id:
                tokens_TB = torch.cat([torch.full_like(tokens_TB[:1], self.config.eos_token_id), tokens_TB])
        else:
            carried = tuple(
                tuple(torch.cat(parts, dim=-2) for parts in zip(*cells, strict=True))
                for cells in zip(*states, strict=True)
            )
        outputs_TBR, after = model.read(tokens_TB, carried)
        logits_KBV = model.expect(outputs_TBR[len(outputs_TBR) - keep :])
        rows = [
            tuple(tuple(part[..., row : row + 1, :] for part in cell) for cell in after)
            for row in range(len(tokens_BT))
        ]
        return logits_KBV.transpose(0, 1), rows


class TslmRunForCausalLM(TslmModel):
    """Any other model, as counted, mixed or with a cache: it is read word by word, and has no weights to train."""

    config_class = TslmRunConfig

    def __init__(self, config: TslmRunConfig) -> None:
        super().__init__(config)
        # transformers asks a model's first parameter where it is and of what type its numbers are.
        self.nothing = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
        self.run_model: LanguageModel[Any] | None = None
        self.run_folder = Path()
        self.post_init()

    def _init_weights(self, module: Any) -> None:
        """There is nothing to draw."""

    @classmethod
    def from_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, pretrained_model_name_or_path: str | Path, *_: Any, config: Any = None, **kwargs: Any
    ) -> TslmRunForCausalLM:
        """Open a folder that ``tslm export hf`` or ``save_pretrained`` wrote."""
        folder = Path(pretrained_model_name_or_path)
        if not (folder / RUN_FOLDER).is_dir():
            raise RunError(
                f"{folder} has no folder {RUN_FOLDER!r}; write it with: tslm export hf RUN {folder}"
            )
        if not isinstance(config, TslmRunConfig):
            config = TslmRunConfig.from_pretrained(folder)
        model = cls(config)
        model.run_folder = folder / RUN_FOLDER
        model.run_model = open_run(model.run_folder).model
        if (folder / "generation_config.json").is_file():
            model.generation_config = GenerationConfig.from_pretrained(folder)
        return model.eval()

    def save_pretrained(self, save_directory: str | Path, *args: Any, **kwargs: Any) -> None:
        """Write a folder that ``from_pretrained`` opens: the run goes with it, for it holds the numbers.

        Raises:
            RunError: the model was not opened from a folder, or there is another run in this one.
        """
        self._require_model()
        copy_run(open_run(self.run_folder), Path(save_directory) / RUN_FOLDER)
        super().save_pretrained(save_directory, *args, **kwargs)

    def _require_model(self) -> LanguageModel[Any]:
        if self.run_model is None:
            raise RunError(
                "this model has no numbers; open it with from_pretrained, not from its config alone"
            )
        return self.run_model

    def read_rows(
        self, tokens_BT: Int[Tensor, "B T"], states: Sequence[Any] | None, keep: int
    ) -> tuple[Float[Tensor, "B K V"], list[Any]]:
        """Read the texts one after the other: their states may be of different sizes."""
        results = [
            self._read(row, None if states is None else states[place], keep)
            for place, row in enumerate(tokens_BT.numpy(force=True))
        ]
        logits_BKV = torch.from_numpy(np.stack([logits_KV for logits_KV, _ in results]))
        return logits_BKV, [state for _, state in results]

    def _read(self, tokens_T: Int[np.ndarray, " T"], state: Any, keep: int) -> tuple[Any, Any]:
        model = self._require_model()
        predicted: list[Any] = []
        if state is None:
            state = model.start(1)
            if tokens_T[0] == self.config.eos_token_id:
                if keep == len(tokens_T):
                    predicted.append(model.predict(state)[0])
                    keep -= 1
                tokens_T = tokens_T[1:]
        before = len(tokens_T) - keep
        if before > 0:
            _, state = model.score(tokens_T[None, :before], state)
        for token in tokens_T[before:]:
            _, state = model.score(np.array([[token]]), state)
            predicted.append(model.predict(state)[0])
        V = self.config.vocab_size
        return np.array(predicted, np.float32).reshape(len(predicted), V), state


def copy_run(run: Run, folder: Path) -> None:
    """Copy what a run needs to be opened, and its summary, byte by byte."""
    if folder.resolve() == run.folder.resolve():
        return
    with locked_run(folder):
        prepare_folder(folder, run.recipe, run.vocabulary, run.rule)
        for name in (WEIGHTS, SUMMARY):
            if (run.folder / name).exists():
                with sealed(folder / name) as temporary:
                    shutil.copyfile(run.folder / name, temporary)
        if (run.folder / PARTS).is_dir():
            shutil.copytree(run.folder / PARTS, folder / PARTS, dirs_exist_ok=True)


class TslmTextGeneration(TextGenerationPipeline):
    """The pipeline ``text-generation``, for models of ours and of others.

    transformers writes what was generated without a look at the prompt. Ours is written as what goes on behind it: no
    space at the beginning of a line, and a quotation that the prompt has opened is closed.
    """

    def postprocess(self, model_outputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Return the records of a prompt."""
        prompt_BT = model_outputs["input_ids"]
        if prompt_BT is None or not isinstance(self.tokenizer, WritesByRule):
            return super().postprocess(model_outputs, *args, **kwargs)
        with self.tokenizer.behind(prompt_BT[0].tolist()):
            return super().postprocess(model_outputs, *args, **kwargs)


def describe_generation(eos_id: int) -> Mapping[str, Any]:
    """Return what ``generate`` does unless it is told otherwise: a text ends where a line does."""
    return {"bos_token_id": eos_id, "eos_token_id": eos_id, "pad_token_id": eos_id}


def register() -> None:
    """Tell transformers which classes open a folder of ours."""
    for config, model in ((TslmConfig, TslmForCausalLM), (TslmRunConfig, TslmRunForCausalLM)):
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModelForCausalLM.register(config, model, exist_ok=True)
        AutoTokenizer.register(config, TslmTokenizer, fast_tokenizer_class=TslmFastTokenizer, exist_ok=True)
    PIPELINE_REGISTRY.supported_tasks["text-generation"]["impl"] = TslmTextGeneration


register()
