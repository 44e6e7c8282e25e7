"""How much arithmetic a training step is, and how much the device could do."""

import time

import jax
import jax.numpy as jnp

from pe_jax.config import GATED

# Dense bfloat16 peak of one device in FLOP/s, from the makers' data sheets.
PEAK = {
  'TPU v4': 275e12,
  'TPU v5 lite': 197e12,
  'TPU v5e': 197e12,
  'TPU v5': 459e12,
  'TPU v5p': 459e12,
  'TPU v6 lite': 918e12,
  'TPU v6e': 918e12,
  'NVIDIA A100-SXM4-40GB': 312e12,
  'NVIDIA A100-SXM4-80GB': 312e12,
  'NVIDIA H100 80GB HBM3': 989e12,
  'NVIDIA H200': 989e12,
}


def per_token(config):
  """Model FLOPs of one trained token, forward and backward: three times those of a forward at the training length."""
  return 3 * forward(config, config.train_length)


def forward(config, length):
  """Model FLOPs of a token's forward in a text of `length` tokens: 2 a weight that multiplies, 4 K a visible pair of each head."""
  m = config.model
  gates = 3 if m.mlp in GATED else 2
  weights = m.embed_dim * (2 * m.num_heads * m.head_dim + 2 * m.num_kv_heads * m.head_dim + gates * m.mlp_dim) * m.num_layers
  weights += m.embed_dim * m.vocab_size
  pairs = (length + 1) / 2 if m.causal else length
  return 2 * weights + 4 * m.num_layers * m.num_heads * m.head_dim * pairs


def peak():
  """(FLOP/s of all devices, how it is known). A device that is not in the table, such as a CPU, is probed with a matmul."""
  device = jax.devices()[0]
  if device.device_kind in PEAK:
    return PEAK[device.device_kind] * jax.device_count(), 'data sheet, bfloat16'
  size = 1024
  x = jnp.ones((size, size), jnp.float32)
  multiply = jax.jit(jnp.dot)
  multiply(x, x).block_until_ready()
  best = min(_seconds(lambda: multiply(x, x).block_until_ready()) for _ in range(5))
  return 2 * size**3 / best, 'probed, float32 matmul'


def _seconds(call):
  start = time.perf_counter()
  call()
  return time.perf_counter() - start
