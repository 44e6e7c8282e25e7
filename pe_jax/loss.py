"""Negative log-likelihood in nats, float32 whatever the model's dtype."""

import jax
import jax.numpy as jnp


def nll(logits_BTV, targets_BT):
  """-log p(target) at each place, float32 (B, T). Targets are in 0 .. V-1; the data pipeline has checked that."""
  logits_BTV = logits_BTV.astype(jnp.float32)
  hit_BT = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
  return jax.nn.logsumexp(logits_BTV, axis=-1) - hit_BT
