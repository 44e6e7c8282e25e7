"""The cases of other programs on torch, run by an interpreter that has them: nothing of pe_jax is imported here.

Hugging Face Llama and GPT-2, x-transformers, torch's scaled_dot_product_attention (SDPA) and FlexAttention, each as its makers' examples
use it. Models have the sizes of ours: a gated MLP has 8/3 of the width, so that it has as many weights as a plain one of 4.
"""

import contextlib
import platform
import time
from importlib import metadata

import torch
import torch.nn.functional as F

from benchmarks.worker import Case


def versions():
  """Of torch and what stands on it."""
  packages = {name: metadata.version(name) for name in ('torch', 'transformers', 'x-transformers')}
  return packages | {'python of the peers': platform.python_version(), 'torch threads': torch.get_num_threads()}


def llama(width, layers, heads, vocabulary, length):
  """Hugging Face Llama."""
  from transformers import LlamaConfig, LlamaForCausalLM

  hidden = -(-8 * width // 3) // 8 * 8
  sizes = {'hidden_size': width, 'intermediate_size': hidden, 'num_hidden_layers': layers, 'num_attention_heads': heads}
  return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, max_position_embeddings=length, tie_word_embeddings=True, **sizes))


def gpt2(width, layers, heads, vocabulary, length):
  """Hugging Face GPT-2, without dropout."""
  from transformers import GPT2Config, GPT2LMHeadModel

  off = dict.fromkeys(('resid_pdrop', 'embd_pdrop', 'attn_pdrop'), 0.0)
  sizes = {'n_embd': width, 'n_layer': layers, 'n_head': heads}
  return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, n_positions=length, **sizes, **off))


def x_transformer(width, layers, heads, vocabulary, length, **positions):
  """x-transformers' decoder, with its fast attention."""
  from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

  body = Decoder(dim=width, depth=layers, heads=heads, attn_dim_head=width // heads, attn_flash=True, **positions)
  use_table = {'use_abs_pos_emb': False}
  return AutoregressiveWrapper(TransformerWrapper(num_tokens=vocabulary, max_seq_len=length, attn_layers=body, **use_table))


def train(peer, rows, length, vocabulary, bf16=False, **sizes):
  """Forward, backward and an AdamW update; `bf16`: under autocast."""
  torch.manual_seed(0)
  sizes = sizes | {'vocabulary': vocabulary, 'length': length}
  text = torch.randint(1, vocabulary, (rows, length + 1))
  if peer in ('llama', 'gpt2'):
    net = {'llama': llama, 'gpt2': gpt2}[peer](**sizes)
    text = text[:, :-1].contiguous()

    def loss():
      return net(input_ids=text, labels=text).loss
  else:
    net = x_transformer(**sizes, **{'rotary': {'rotary_pos_emb': True}, 'alibi': {'alibi_pos_bias': True}}[peer])

    def loss():
      return net(text)

  net.train()
  optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)

  def run():
    with torch.autocast('cpu', dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
      value = loss()
    value.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

  return Case(run, {'units': rows * length})


def alibi_mask(heads, length):
  """-slope x distance where a query sees a key, -inf elsewhere: (1, H, L, L)."""
  slope = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)
  pos = torch.arange(length)
  distance = (pos[:, None] - pos[None]).float()
  return (-slope[:, None, None] * distance).masked_fill(distance < 0, float('-inf'))[None]


def attention(kind, length, backward=False, heads=4, width=64):
  """Attention over one row. Kind 'causal': no bias; 'mask': SDPA with ALiBi's mask; 'flex': FlexAttention with ALiBi, compiled.

  A mask is made at the first call and kept, as a model could keep it for its layers and steps: its making is not timed. Memory counts it.
  """
  torch.manual_seed(0)
  q, k, v, d_out = torch.randn(4, 1, heads, length, width)
  if backward:
    for x in (q, k, v):
      x.requires_grad_()
  make, call = {'causal': _causal, 'mask': _mask, 'flex': _flex}[kind](heads, length)
  kept = []

  def run():
    if not kept:
      kept.append(make())
    with contextlib.nullcontext() if backward else torch.no_grad():
      out = call(q, k, v, kept[0])
    if backward:
      torch.autograd.grad(out, (q, k, v), d_out)

  return Case(run, forget=kept.clear)


def _causal(heads, length):
  del heads, length
  return lambda: None, lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _mask(heads, length):
  return lambda: alibi_mask(heads, length), lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _flex(heads, length):
  from torch.nn.attention.flex_attention import create_block_mask, flex_attention

  slope = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)

  def bias(score, b, h, i, j):
    del b
    return score - slope[h] * (i - j)

  def causal(b, h, i, j):
    del b, h
    return i >= j

  compiled = torch.compile(flex_attention)

  def make():
    return create_block_mask(causal, None, None, length, length, device='cpu')

  return make, lambda q, k, v, mask: compiled(q, k, v, score_mod=bias, block_mask=mask)


def loss(tokens, width, vocabulary):
  """cross_entropy of all logits, with the gradients for hidden states and head."""
  torch.manual_seed(0)
  x, head = torch.randn(tokens, width, requires_grad=True), (torch.randn(vocabulary, width) * width**-0.5).requires_grad_()
  targets = torch.randint(0, vocabulary, (tokens,))

  def run():
    torch.autograd.grad(F.cross_entropy(x @ head.T, targets, reduction='sum'), (x, head))

  return Case(run, {'units': tokens})


def decode(context, new, rows, vocabulary, **sizes):
  """Seconds a token of Llama: one token in, the likeliest out, the cache growing as it comes; the prompt is read once and not timed."""
  from transformers import DynamicCache

  torch.manual_seed(0)
  net = llama(vocabulary=vocabulary, length=context + new + 1, **sizes).eval()
  cache = DynamicCache()
  with torch.no_grad():
    net(input_ids=torch.randint(1, vocabulary, (rows, context)), past_key_values=cache, logits_to_keep=1)
  first = torch.randint(1, vocabulary, (rows, 1))

  @torch.no_grad()
  def run():
    token, start = first, time.perf_counter()
    for _ in range(new):
      token = net(input_ids=token, past_key_values=cache).logits[:, -1:].argmax(-1)
    seconds = (time.perf_counter() - start) / new
    cache.crop(-new)
    return seconds

  return Case(run)


def matmul(size):
  """The probe's product in torch."""
  torch.manual_seed(0)
  a, b = torch.randn(size, size), torch.randn(size, size)

  def run():
    return a @ b

  return Case(run, {'flops': 2 * size**3})


CASES = {'matmul': matmul, 'train': train, 'attention': attention, 'loss': loss, 'decode': decode}
