"""Text → ids: named corpora, the user's own files, the vocabulary, and the streams that training reads."""
