"""EleutherAI's lm-evaluation-harness: any run as its model ``tslm``.

The harness finds models of others only once they are registered, and has no entry point for them. So this module is
also its command line with ours known: ``python -m tslm.interop.lm_eval run --model tslm --model_args run=RUN …``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tslm.devices import place_model
from tslm.errors import InputError, TslmError, UnsupportedError
from tslm.inference.generate import Sampling, draw_words
from tslm.inference.inputs import open_model

try:
    # Its own models are registered first: it does so by itself only where there are none yet.
    import lm_eval.models  # noqa: F401  # pyright: ignore[reportMissingImports, reportUnusedImport]
    from lm_eval.api.model import LM  # pyright: ignore[reportMissingImports]
    from lm_eval.api.registry import register_model  # pyright: ignore[reportMissingImports]
except ImportError as error:
    missing = "the harness needs lm-eval; install it with: pip install 'tslm[lm-eval]'"
    if __name__ == "__main__":
        print(f"tslm: {missing}", file=sys.stderr)
        sys.exit(2)
    raise UnsupportedError(missing) from error

LENGTH = 256
"""How many words are written where a task does not say."""


@register_model("tslm")  # pyright: ignore[reportUntypedClassDecorator]
class TslmLM(LM):  # pyright: ignore[reportUntypedBaseClass]
    """A run of any kind: recurrent, n-grams, mixes, with caches.

    Texts are cut by the run's own rule. A text begins as if an ``<eos>`` had just been read, and each newline in it is
    one, which is predicted as any word is; at the end of a text there is one only where it ends in a newline. A word
    that the model does not know is scored as ``<unk>``. There is no longest text.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        seed: int = 1,
        device: str | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        """Open a run.

        Args:
            run: the run folder.
            seed: of what is drawn where a task asks for samples.
            device: where to compute, see ``tslm.load``; the CPU where there is no such device.
            batch_size: taken because the harness gives it; texts are read one after the other.
            max_batch_size: likewise.
        """
        super().__init__()
        self.model = open_model(run)
        # The harness asks for cuda:0 unless it is told otherwise, whether there is one or not.
        with suppress(UnsupportedError):
            place_model(self.model, (device or "cpu").partition(":")[0])
        self.seed = seed
        self._context: tuple[tuple[int, ...], Any] | None = None

    @property
    def tokenizer_name(self) -> str:
        """What fingerprints cached requests: the rule."""
        return f"tslm-{self.model.rule.kind}"

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return ln p of each continuation behind its context, and whether the likeliest words give it."""
        return [self._continue(*request.args) for request in requests]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return ln p of each text from its beginning."""
        found: list[float] = []
        for request in requests:
            ids = self._encode(request.args[0])
            scores_BT, _ = self.model.score(ids[None], self.model.start(1))
            found.append(float(scores_BT.sum(dtype=np.float64)))
        return found

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return what the model writes behind each context, up to the first of the strings to stop before."""
        return [self._write(*request.args) for request in requests]

    def _encode(self, text: str) -> NDArray[np.int32]:
        return self.model.vocabulary.encode(self.model.rule.split_lines(text))

    def _read(self, ids: Sequence[int]) -> Any:
        """Return the state after a context; that of the last one is kept, for the choices of a question share it."""
        if self._context is None or self._context[0] != tuple(ids):
            state = self.model.start(1)
            if ids:
                _, state = self.model.score(np.array([ids], np.int32), state)
            self._context = tuple(ids), state
        return self._context[1]

    def _continue(self, context: str, continuation: str) -> tuple[float, bool]:
        """Score what the continuation adds: where it goes on within the context's last word, the whole of that word."""
        whole = self._encode(context + continuation).tolist()
        pairs = zip(self._encode(context).tolist(), whole, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        state = self._read(whole[:shared])
        total, greedy = 0.0, True
        for number in whole[shared:]:
            log_V = self.model.predict(state)[0]
            total += float(log_V[number])
            greedy = greedy and int(log_V.argmax()) == number
            _, state = self.model.score(np.array([[number]], np.int32), state)
        return total, greedy

    def _write(self, context: str, options: Mapping[str, Any]) -> str:
        until = options.get("until") or []
        stops = [stop for stop in ([until] if isinstance(until, str) else until) if stop]
        text = ""
        for piece in self._pieces(context, options):
            text += piece
            places = [text.find(stop) for stop in stops if stop in text]
            if places:
                return text[: min(places)]
        return text

    def _pieces(self, context: str, options: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is written for one word after the other, as it goes on behind the context."""
        sampled = bool(options.get("do_sample", False))
        try:
            length = int(options.get("max_gen_toks", LENGTH))
            sampling = Sampling(
                temperature=float(options.get("temperature", 1.0)) if sampled else 0.0,
                top_k=int(options.get("top_k") or 0),
                top_p=float(options.get("top_p", 1.0)),
            )
        except (TypeError, ValueError) as error:
            raise InputError(
                f"generation_kwargs {dict(options)} are wrong: {error}; give max_gen_toks, temperature, top_k and "
                "top_p as numbers"
            ) from error
        vocabulary, numbers = self.model.vocabulary, np.random.default_rng(self.seed)
        words = self.model.rule.split_lines(context)
        writer = self.model.rule.writer(words)
        state = self._read(vocabulary.encode(words).tolist())
        for _ in range(length):
            words_B = draw_words(self.model.predict(state), numbers.random(1), sampling)
            yield writer.add(vocabulary.words[int(words_B[0])])
            _, state = self.model.score(words_B[None].astype(np.int32), state)
        yield writer.end()


def main() -> None:
    """Run the harness's own command line."""
    from lm_eval.__main__ import cli_evaluate  # pyright: ignore[reportMissingImports]

    sys.argv[0] = "python -m tslm.interop.lm_eval"
    try:
        cli_evaluate()
    except TslmError as error:
        print(f"tslm: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
