"""A synthetic task of pe_jax/tasks, by `data.name`: samples made as they are needed, and no documents.

Training lengths, their sampling and the curriculum are `data.task_*`. A row holds one sample: `data.packing` is 'pad'.
"""

from pe_jax import tasks
from pe_jax.tasks import batches


def streams(config, process_index=0, process_count=1):
  """(training batches, validation rows, what identifies them) of a resolved config."""
  task = tasks.make(config.data.name)
  record = {'source': 'task', 'name': task.spec, 'vocab_size': task.vocab_size}
  both = {'train': record | {'split': 'train'}, 'validation': record | {'split': 'validation'}}
  return batches.TaskBatches(task, config, process_index, process_count), batches.validation_rows(task, config), both
