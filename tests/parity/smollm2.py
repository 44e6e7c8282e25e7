"""What transformers computes with SmolLM2-135M-Instruct on prose.txt, sentences of our documents; needs a Python with the `parity` extra.

    python tests/parity/smollm2.py --gguf SmolLM2.gguf --out tests/parity/smollm2.json

The first 1024 tokens, raw and under two rope types: mean loss in nats a token, and after every token the likeliest next one, its logit, and
the logarithm of the sum of exp of all logits.
"""

import argparse
import importlib.metadata
import json
import pathlib

import torch
import transformers

TOKENS = 1024
TYPES = {'raw': {'rope_type': 'default'}, 'linear': {'rope_type': 'linear', 'factor': 2.0}, 'yarn': {'rope_type': 'yarn', 'factor': 4.0}}


def main():
  """Writes the numbers."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--gguf', type=pathlib.Path, required=True)
  parser.add_argument('--out', type=pathlib.Path, required=True)
  arguments = parser.parse_args()
  where = {'pretrained_model_name_or_path': str(arguments.gguf.parent), 'gguf_file': arguments.gguf.name}
  tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
  text = pathlib.Path(__file__).with_name('prose.txt').read_text(encoding='utf-8')
  ids = tokenizer(text, add_special_tokens=False).input_ids[:TOKENS]
  tokens = torch.tensor(ids)[None]
  found = {'versions': {name: importlib.metadata.version(name) for name in ('torch', 'transformers', 'gguf')}, 'ids': ids}
  model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, attn_implementation='sdpa')
  for name, fields in TYPES.items():
    config = transformers.LlamaConfig.from_dict(model.config.to_dict())
    original = {'original_max_position_embeddings': 8192} if name == 'yarn' else {}
    config.rope_parameters = {'rope_theta': 100_000.0, **fields, **original}
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    with torch.no_grad():
      logits = model.eval()(tokens).logits[0]
    nll = torch.nn.functional.cross_entropy(logits[:-1].double(), tokens[0, 1:]).item()
    top, of = logits.max(-1)
    sums = logits.double().logsumexp(-1)
    found[name] = {
      'nll': nll,
      'token': of.tolist(),
      **{key: [round(y, 4) for y in x.tolist()] for key, x in (('logit', top), ('sum', sums))},
    }
  arguments.out.write_text(json.dumps(found, separators=(',', ':')) + '\n', encoding='utf-8')


if __name__ == '__main__':
  main()
