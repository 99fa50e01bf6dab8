"""Models over HTTP: a JSON API and one page to play with."""
