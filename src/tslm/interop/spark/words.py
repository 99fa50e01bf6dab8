"""The vocabulary of a text on the cluster, by the rule of ``Vocabulary.from_counts``."""

from __future__ import annotations

from typing import Any

from tslm.corpus.rule import TextRule
from tslm.corpus.vocabulary import EOS, UNK, Vocabulary
from tslm.errors import CorpusError
from tslm.interop.spark.session import import_spark
from tslm.interop.spark.windows import word_counter


def count_vocabulary(lines: Any, rule: TextRule, *, min_count: int, max_vocabulary: int | None) -> Vocabulary:
    """Return the frequent words of a text, the same ones in the same order as on one machine.

    Only the words that are kept come to the driver; those that are not are added up where they are.

    Raises:
        CorpusError: the text has no line.
    """
    functions = import_spark("sql.functions")
    column, total = functions.col, functions.sum
    words = (
        lines.mapInArrow(word_counter(rule), "word string, times long")
        .groupBy("word")
        .agg(total("times").alias("times"))
        .persist()
    )
    special = {row.word: row.times for row in words.where(column("word").isin(EOS, UNK)).collect()}
    if EOS not in special:
        raise CorpusError("the text has no line; check the path or pattern that is given as --text")
    usual = words.where(~column("word").isin(EOS, UNK))
    kept = usual.where(column("times") >= min_count)
    if max_vocabulary is not None:
        # As many as fit beside <eos> and <unk>. Bytes of UTF-8 sort as the letters do.
        places = max(max_vocabulary - 2, 0)
        kept = kept.orderBy(column("times").desc(), column("word")).limit(places)
    counts: dict[str, int] = {row.word: row.times for row in kept.toLocalIterator()}
    if min_count > 1 or max_vocabulary is not None:
        all_times = usual.agg(total("times").alias("times")).collect()[0].times or 0
        special[UNK] = special.get(UNK, 0) + all_times - sum(counts.values())
    words.unpersist()
    return Vocabulary.from_counts({**counts, **special}, min_count, max_vocabulary)
