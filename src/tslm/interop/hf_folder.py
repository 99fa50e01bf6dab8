"""Runs to folders of Hugging Face transformers, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tslm.corpus.rule import RULE_FILE, load_rule
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import RunError
from tslm.files import check_folder, make_folder, write_text
from tslm.interop.hf_rules import TOKENIZER_FILE, write_fast_tokenizer
from tslm.interop.hf_tokenizer import TslmFastTokenizer, TslmTokenizer
from tslm.interop.huggingface import (
    RUN_FOLDER,
    TslmConfig,
    TslmForCausalLM,
    TslmRunConfig,
    copy_run,
    describe_generation,
)
from tslm.models.arrays import WEIGHTS
from tslm.models.base import LanguageModel
from tslm.models.recurrent.model import RecurrentModel
from tslm.models.weights import load_weights, save_weights
from tslm.runs.folder import RECIPE, VOCABULARY, locked_run, prepare_folder
from tslm.runs.recipe import make_recipe, recipe_tables
from tslm.runs.run import Run, open_run
from tslm.runs.summary import SUMMARY, parse_summary, write_summary
from tslm.seals import hash_whole

CONFIG = "config.json"
PREFIX = "language_model."
"""Before the names of our weights in their file."""


def export_hf(run: Run, folder: Path) -> None:
    """Write a run as a folder that the Auto classes of transformers open.

    A recurrent model's weights go into ``model.safetensors``; any other model goes as the run folder it is.

    Raises:
        RunError: there is something in the folder already.
    """
    check_folder(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty; choose another folder, or delete it")
    from transformers import GenerationConfig

    model, eos_id = run.model, run.model.vocabulary.eos_id
    make_folder(folder)
    recurrent = isinstance(model, RecurrentModel)
    config = (TslmConfig if recurrent else TslmRunConfig)(
        vocab_size=len(model.vocabulary),
        recipe=recipe_tables(run.recipe),
        summary=None if run.summary is None else run.summary.as_json(),
        **cast(dict[str, Any], describe_generation(eos_id)),
    )
    if recurrent:
        theirs = TslmForCausalLM(config)
        theirs.generation_config = GenerationConfig(**describe_generation(eos_id))
        # As they are in the file: what a cell follows of its weights is brought up to date when it is opened.
        weights = load_weights(run.folder)
        theirs.save_pretrained(folder, state_dict={f"{PREFIX}{key}": value for key, value in weights.items()})
        theirs.config.weights_sha256 = hash_whole(folder / WEIGHTS)
        theirs.config.save_pretrained(folder)
    else:
        copy_run(run, folder / RUN_FOLDER)
        config.architectures = ["TslmRunForCausalLM"]
        config.save_pretrained(folder)
        GenerationConfig(**describe_generation(eos_id)).save_pretrained(folder)
    model.vocabulary.save(folder / VOCABULARY)
    model.rule.save(folder / RULE_FILE)
    fast = write_fast_tokenizer(model.rule, model.vocabulary)
    if fast is None:
        TslmTokenizer.from_pretrained(folder).save_pretrained(folder)
    else:
        write_text(folder / TOKENIZER_FILE, fast)
        TslmFastTokenizer.from_pretrained(folder).save_pretrained(folder)


def import_hf(folder: Path, out: Path) -> LanguageModel[Any]:
    """Read such a folder, trained further or not, into a run folder that ``tslm.load`` opens.

    The results of a run come with it only where its weights are still those that were measured.

    Raises:
        RunError: the folder is none of ours, or there is a run in ``out`` already.
    """
    if any((out / name).exists() for name in (SUMMARY, RECIPE)):
        raise RunError(f"{out} holds a run already; choose another folder, or delete it")
    check_folder(out)
    if not (folder / CONFIG).is_file():
        raise RunError(f"{folder} has no {CONFIG}; give a folder that tslm export hf wrote")
    if (folder / RUN_FOLDER).is_dir():
        copy_run(open_run(folder / RUN_FOLDER), out)
        return open_run(out).model
    config = TslmConfig.from_pretrained(folder)
    if config.model_type != TslmConfig.model_type or not config.recipe:
        raise RunError(
            f"{folder} holds a model of type {config.model_type!r}, not one of ours; export a run first"
        )
    recipe = make_recipe(config.recipe)
    weights = {key.removeprefix(PREFIX): value for key, value in load_weights(folder).items()}
    with locked_run(out):
        prepare_folder(out, recipe, Vocabulary.load(folder / VOCABULARY), load_rule(folder / RULE_FILE))
        save_weights(out, weights)
        if config.summary and hash_whole(folder / WEIGHTS) == config.weights_sha256:
            write_summary(out, parse_summary(config.summary))
    return open_run(out).model
