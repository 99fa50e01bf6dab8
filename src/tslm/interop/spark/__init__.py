"""Counting and scoring on an Apache Spark cluster (the extra ``spark``)."""
