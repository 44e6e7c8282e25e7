"""Going on from a checkpoint, imported or our own: on other text, at another length, under another encoding.

python train.py --config=configs/finetune.py:runs/smollm2,train_length=512,steps=100 --workdir=runs/tuned \\
  --config.data.source=text --config.data.path=books

The model's fields, encoding and tokenizer are the checkpoint's. Text is the Python standard library unless data.source says otherwise.
"""

from pe_jax import workdir
from pe_jax.config import default, parse_arg
from pe_jax.errors import ConfigError


def get_config(arg=''):
  """`:<workdir>,encoding=…,train_length=0,steps=100`; 0 and '' keep the checkpoint's."""
  arg = parse_arg(arg, checkpoint='', encoding='', train_length=0, steps=100)
  if not arg.checkpoint:
    raise ConfigError('config argument: the workdir to start from is missing (as in configs/finetune.py:runs/smollm2)')
  stored = workdir.read_config(arg.checkpoint)
  c = default()
  c.model.update(stored.model.to_dict())
  c.data.tokenizer = stored.data.tokenizer
  c.init_from = arg.checkpoint
  c.encoding = arg.encoding or stored.encoding
  c.train_length = arg.train_length or stored.train_length
  c.num_train_steps = arg.steps
  c.batch_size = 8
  c.optim.learning_rate = 1e-4  # a tenth of what a fresh model bears
  return c
