"""Texts: lines, tokens, vocabularies."""
