"""Time and memory of one forward of the same weights in transformers; run with a Python that has the `parity` extra.

  python peer.py model.gguf 8192 bfloat16 512 3      length, type, positions whose logits are made, forwards: one JSON object on stdout

Text makes no difference to either, so tokens are drawn. The largest resident size is that of the whole process, after loading.
"""

import importlib.metadata
import json
import pathlib
import re
import sys
import time

import torch
import transformers

STATUS, RESET = pathlib.Path('/proc/self/status'), pathlib.Path('/proc/self/clear_refs')


def main():
  """Loads, runs once, times the others."""
  path, length, dtype, kept, times = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
  model = transformers.AutoModelForCausalLM.from_pretrained(
    str(path.parent), gguf_file=path.name, dtype=getattr(torch, dtype), attn_implementation='sdpa'
  ).eval()
  tokens = torch.randint(0, model.config.vocab_size, (1, length), generator=torch.Generator().manual_seed(0))
  if RESET.exists():
    RESET.write_text('5')
  seconds = []
  with torch.no_grad():
    for _ in range(times):
      start = time.perf_counter()
      model(tokens, use_cache=False, logits_to_keep=kept)
      seconds.append(time.perf_counter() - start)
  found = re.search(r'VmHWM:\s+(\d+)', STATUS.read_text()) if STATUS.exists() else None
  versions = {name: importlib.metadata.version(name) for name in ('torch', 'transformers')}
  print(json.dumps({'seconds': min(seconds), 'peak_gb': int(found[1]) * 1024 / 1e9 if found else None, 'versions': versions}))


if __name__ == '__main__':
  main()
