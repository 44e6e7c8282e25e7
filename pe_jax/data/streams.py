"""What a run reads: training batches, validation rows, and the record by which it knows them again."""

from pe_jax.data import sources
from pe_jax.data.blocks import encode_all
from pe_jax.data.evaluation import evaluation_rows
from pe_jax.data.pipeline import Batches
from pe_jax.data.tokenizer import make


def streams(config, process_index=0, process_count=1):
  """(iterator of training batches with `state` and `set_state`, Rows for validation, record) of a resolved config."""
  data, source = config.data, sources.module(config.data.source)
  if hasattr(source, 'streams'):
    return source.streams(config, process_index, process_count)
  tokenizer = make(data.tokenizer)
  train, validation = sources.open(data, 'train'), sources.open(data, 'validation')
  encode_all([train[0], train[-1]], tokenizer)  # a shard that cannot be read is told before anything is written
  rows, _ = evaluation_rows(
    validation,
    tokenizer,
    length=config.train_length,
    max_targets=config.eval_targets,
    min_bytes=data.min_bytes,
    packing='pad' if data.packing == 'pad' else 'windows',  # the step is told of rows of one document each
  )
  batches = Batches(
    train,
    tokenizer,
    length=config.train_length,
    batch_size=config.batch_size,
    seed=config.seed,
    packing=data.packing,
    block_documents=data.block_documents,
    min_bytes=data.min_bytes,
    process_index=process_index,
    process_count=process_count,
  )
  return batches, rows, {'train': train.record, 'validation': validation.record}
