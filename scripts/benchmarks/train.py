"""Rows 1 to 4: a training step against the textbook, nanodo, Hugging Face and x-transformers, and against the machine's matmul peak.

Tokens a second, AdamW and float32 unless said. Each peer runs twice: as it comes, and with the process settings of pe_jax (malloc's
for all; the compiler options too for what is made of jax). Against Llama and GPT-2 our model has their parts: gated MLP, biases and so on.
nanodo is there where `--peer=nanodo=PATH` names a checkout.
"""

from benchmarks.plan import Contestant, Group, Row, memory_ratio, share_of_peak, speed_ratio

SMALL = {'width': 256, 'layers': 4, 'heads': 4, 'vocabulary': 512, 'length': 512, 'rows': 8}
LARGE = SMALL | {'width': 512, 'layers': 6, 'heads': 8}


def groups(quick, nanodo=None):
  """The small model, and in the full benchmark the larger one."""
  small = group(SMALL, 'D=256, 4 layers', nanodo, few=quick)
  return [small] if quick else [small, group(LARGE, 'D=512, 6 layers', nanodo, few=True)]


def group(sizes, name, nanodo, few):
  """One model size. `few`: without GPT-2 and ALiBi."""
  contestants = [
    Contestant('ours', 'ours', 'train', sizes, memory=True),
    Contestant('ours as Llama', 'ours', 'train', sizes | {'form': 'llama'}, memory=True),
  ]
  rows = [Row('4', f'share of the matmul peak, {name}', share_of_peak('ours'), 40, 60, at_least=True, unit='%')]

  def pair(peer, ours, module, args, same=None, memory=False):
    """The peer as it comes and with the same settings, and names of the two."""
    names = f'{peer} as it comes', f'{peer}, same settings'
    contestants.append(Contestant(names[0], module, 'train', args, 'as it comes'))
    contestants.append(Contestant(names[1], module, 'train', args | (same or {}), memory=memory))
    if memory:
      measure = f'extra memory of a step ÷ {peer}, same settings, {name}'
      rows.append(Row('–', measure, memory_ratio(ours, names[1])))
    return [(f'tokens/s ÷ {n}, {name}', speed_ratio(ours, n)) for n in names]

  first, second = pair('textbook flax', 'ours', 'textbook', sizes, {'options': True}, memory=True)
  rows += [Row('1', *first, 1.4, 2.0, at_least=True), Row('2', *second, 1.0, 1.2, at_least=True)]
  if nanodo:
    first, second = pair('nanodo', 'ours', 'nanodo', sizes | {'path': nanodo})
    rows += [Row('1', *first, 1.4, 2.0, at_least=True), Row('2', *second, 1.0, 1.2, at_least=True)]
  contestants += [
    Contestant(f'{own} matmul', module, 'matmul', {'size': 1024}) for own, module in (('jax', 'ours'), ('torch', 'torch_peers'))
  ]
  # Why a torch step can be faster here: on other processors its products are half as fast as those of jax.
  rows.append(Row('–', f'float32 matmul of torch: speed ÷ that of jax, {name}', speed_ratio('torch matmul', 'jax matmul'), at_least=True))
  first, second = pair('HF Llama', 'ours as Llama', 'torch_peers', sizes | {'peer': 'llama'}, memory=True)
  rows += [Row('3', *first, at_least=True), Row('3', *second, 1.2, 1.6, at_least=True)]
  bf16 = 'HF Llama bf16, same settings'
  contestants.append(Contestant(bf16, 'torch_peers', 'train', sizes | {'peer': 'llama', 'bf16': True}))
  rows.append(Row('3', f'tokens/s ÷ {bf16}, {name}', speed_ratio('ours as Llama', bf16), None, 1.0, at_least=True))
  if few:
    return Group(f'training step, {name}', contestants, rows)

  others = [
    ('HF GPT-2', 'ours as GPT-2', 'gpt2', {'encoding': 'learned', 'form': 'gpt2'}),
    ('x-transformers rotary', 'ours', 'rotary', None),
    ('x-transformers ALiBi', 'ours, ALiBi', 'alibi', {'encoding': 'alibi'}),
  ]
  for peer, ours, kind, form in others:
    if form:
      contestants.append(Contestant(ours, 'ours', 'train', sizes | form))
    rows += [Row('–', *value, at_least=True) for value in pair(peer, ours, 'torch_peers', sizes | {'peer': kind})]
  return Group(f'training step, {name}', contestants, rows)
