"""Attention alone: translation, GPT, BERT, images, and a Turing machine that is learned."""
