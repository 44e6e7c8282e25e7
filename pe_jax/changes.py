"""With which changes of its configuration a run goes on.

refused     what a step computes or which rows it sees: model, encoding, data, seed, batch, optimizer, schedule; exit code 6
allowed     what is kept, shown and measured of the same run, and how it is spread over devices; the number of steps too, where nothing that
            a step computes depends on it. Told, and written into config_history.jsonl
overridden  --override_config takes on what is refused, and config_history.jsonl says from which step
"""

from pe_jax import config as config_lib

ALLOWED = (
  'log_every_steps',
  'log_batches',
  'eval_every_steps',
  'checkpoint_every_steps',
  'keep_checkpoints',
  'tensorboard',
  'wandb',
  'nonfinite',
  'nonfinite_in_a_row',
  'mesh.data',
  'mesh.fsdp',
)


def between(old, new):
  """{field: (old, new)} of two configs, given as dicts; a field that one lacks is None there."""
  old, new = config_lib.flatten(old), config_lib.flatten(new)
  return {field: (old.get(field), new.get(field)) for field in sorted(old.keys() | new.keys()) if old.get(field) != new.get(field)}


def refused(changed, config, newest):
  """The fields among `changed`, as from `between`, with which a run does not go on. `config` is the new one, resolved.

  `newest` is the step of the newest checkpoint: fewer steps than that cannot be taken any more.
  """
  free = set(ALLOWED) | ({'num_train_steps'} if config.num_train_steps >= newest and not steps_matter(config) else set())
  return [field for field in changed if field not in free]


def steps_matter(config):
  """Whether a step computes something else when the run is to be longer: a falling learning rate, an encoding that changes on the way."""
  from pe_jax import encodings, model

  curriculum = config.data.source == 'task' and config.data.task_curriculum > 0
  return config.optim.final_fraction != 1 or curriculum or bool(encodings.make(config.encoding, model.dims(config)).schedule)
