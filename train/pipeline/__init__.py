"""The training pipeline: a teacher and a list of prompts in, draft heads out. One module per step; train/run.py calls them."""
