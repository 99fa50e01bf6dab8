"""``tslm generate``: text from a model."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """examples:
  tslm generate runs/ptb-kn5 --prompt "the company said"
  tslm generate runs/ptb-kn5 --prompt "in the" --number 5 --length 20 --temperature 0.8 --top-k 50 --seed 7
  tslm generate runs/ptb-kn5 --no-unk --go-on --length 200
  tslm generate runs/ptb-kn5 --prompt "it is" --temperature 0 --json"""


def add(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "generate",
        help="write text",
        description="Write text: a sample as it grows, or several together.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_folder", metavar="RUN", help="a folder that tslm train wrote")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="the words to go on from")
    parser.add_argument("--number", type=int, default=1, metavar="N", help="how many samples (default: 1)")
    parser.add_argument("--length", type=int, default=50, metavar="N", help="at most N words (default: 50)")
    parser.add_argument(
        "--temperature", type=float, default=1.0, metavar="T", help="0 for the best word (default: 1)"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, metavar="K", help="draw from the K best words (default: all)"
    )
    parser.add_argument(
        "--top-p", type=float, default=1.0, metavar="P", help="draw from the best words with probability P"
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same text (default: 1)")
    parser.add_argument(
        "--stop", metavar="WORDS", action="append", default=[], help="end a sample before these words"
    )
    parser.add_argument(
        "--go-on", action="store_true", help="go on behind the end of a sentence, on a new line"
    )
    parser.add_argument("--no-unk", action="store_true", help="never draw <unk>")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import json

    import tslm
    from tslm.corpus.vocabulary import EOS, UNK
    from tslm.inference.generate import Generation, Sampling

    sampling = Sampling(
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        seed=arguments.seed,
        exclude=(UNK,) if arguments.no_unk else (),
    )
    generation = Generation(
        tslm.load(arguments.run_folder),
        arguments.prompt,
        number=arguments.number,
        length=arguments.length,
        stop=[*arguments.stop, *(() if arguments.go_on else (EOS,))],
        sampling=sampling,
    )
    streams = arguments.number == 1 and not arguments.json
    texts = [list(arguments.prompt.split()) for _ in range(arguments.number)]
    scores = [0.0] * arguments.number
    new_line = not arguments.prompt
    if streams:
        print(arguments.prompt, end="", flush=True)
    for draws in generation:
        for draw in draws:
            texts[draw.sample].append(draw.word)
            scores[draw.sample] += draw.log_probability
            if streams:
                print(
                    "\n" if draw.word == EOS else draw.word if new_line else f" {draw.word}",
                    end="",
                    flush=True,
                )
                new_line = draw.word == EOS
    if streams:
        print()
        return 0
    written = [" ".join(words).replace(f" {EOS}", "\n").replace("\n ", "\n") for words in texts]
    if arguments.json:
        samples = [
            {"text": text, "log_probability": score, "reason": reason}
            for text, score, reason in zip(written, scores, generation.reasons, strict=True)
        ]
        print(json.dumps({"prompt": arguments.prompt, "samples": samples}, ensure_ascii=False))
    else:
        for place, text in enumerate(written, 1):
            print(f"{place:>3}  {text}")
    return 0
