"""What transformers makes of exported folders: run with a Python that has the `parity` extra.

    python tests/parity/exported.py --out found.json --text 'def ' --new 12 folder [folder …]

Writes {folder: {plain: ids of the text, begun: ids as a model is given them, special: ids of special tokens, new: greedy decoding's ids}}.
"""

import argparse
import json
import pathlib

import torch
import transformers


def main():
  """Writes what was found."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--out', type=pathlib.Path, required=True)
  parser.add_argument('--text', required=True)
  parser.add_argument('--new', type=int, required=True)
  parser.add_argument('folders', nargs='+')
  arguments = parser.parse_args()
  transformers.logging.set_verbosity_error()
  found = {}
  for folder in arguments.folders:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    begun = tokenizer(arguments.text, return_tensors='pt', return_token_type_ids=False)
    with torch.no_grad():
      tokens = model.generate(**begun, max_new_tokens=arguments.new, do_sample=False)
    found[folder] = {
      'plain': tokenizer(arguments.text, add_special_tokens=False).input_ids,
      'begun': begun.input_ids[0].tolist(),
      'special': {'bos': tokenizer.bos_token_id, 'eos': tokenizer.eos_token_id, 'pad': tokenizer.pad_token_id},
      'template': tokenizer.chat_template,
      'new': tokens[0, begun.input_ids.shape[1] :].tolist(),
    }
  arguments.out.write_text(json.dumps(found), encoding='utf-8')


if __name__ == '__main__':
  main()
