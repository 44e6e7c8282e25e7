"""From text to rows of tokens: where documents come from, how they become tokens, and how tokens fill rows.

A source (a file of `sources`) gives documents as UTF-8 bytes, a tokenizer turns each into content tokens, and packing
lays them into rows whose targets never cross a document. Training takes an infinite, resumable stream of such rows;
evaluation takes a fixed list of them, which holds the same targets at every length. Everything here is numpy on the
host, so it can be tried without a device.
"""

from pe_jax.data import packing
from pe_jax.data.evaluation import evaluation_documents, evaluation_rows
from pe_jax.data.pipeline import Batches, prefetch
from pe_jax.data.sources import open as open_documents
from pe_jax.data.streams import streams
from pe_jax.data.tokenizer import make as make_tokenizer

__all__ = ['Batches', 'evaluation_documents', 'evaluation_rows', 'make_tokenizer', 'open_documents', 'packing', 'prefetch', 'streams']
