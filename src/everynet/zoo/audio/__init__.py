"""Classifiers of sounds, speech written down by CTC, WaveNet, and music note by note."""
