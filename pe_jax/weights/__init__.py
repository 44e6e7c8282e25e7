"""Checkpoints of other programs: read into a run's folder, and written from one.

A family (a file of `families`, named as transformers names the model type) says in tables what its config.json means in our fields and
which tensor of its files is which of our parameters; reading and writing go along the same tables. `hf_folder` and `gguf_file` give the
tensors of a Hugging Face folder and of a GGUF file, `vocabulary` the tokenizer; `importing` and `exporting` put a run or a folder together.
Everything that is read is data: no pickle, no code.
"""
