"""Bring a checkpoint of another program into a run's folder, so that every command works on it as on a run of our own.

  scripts/import_checkpoint.py --source=SmolLM2-135M --workdir=runs/smollm2          # a Hugging Face folder: config.json, safetensors
  scripts/import_checkpoint.py --source=SmolLM2-135M.Q4_1.gguf --workdir=runs/smollm2
  eval.py --workdir=runs/smollm2 --text=book.txt --lengths=2048,8192,16384 --encodings='rope, yarn(factor=2)'

Reads arcee, bloom, falcon, gpt2, gpt_neox, gptj, llama, mistral, mpt, olmo2, qwen2, qwen3 and smollm3 from folders, and llama, olmo2,
qwen2, qwen3 and smollm3 from GGUF files of any type that the gguf package dequantises. Pickles are refused: they can run any code;
--allow_pickle reads pytorch_model.bin with a reader that runs nothing and refuses what is no tensor. The encoding is translated into our
grammar; what cannot be read with certainty is refused by name. Prints the card, which is also WORKDIR/card.json.
Exit codes as train.py's.
"""

from absl import flags

from pe_jax import cli

SOURCE = flags.DEFINE_string('source', None, 'A Hugging Face folder, or a .gguf file.')
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run to be.')
TRAIN_LENGTH = flags.DEFINE_integer('train_length', 0, 'Positions the model was trained at; 0: as its config.json says.', lower_bound=0)
TOKENIZER = flags.DEFINE_string('tokenizer', '', "A tokenizer.json or sentencepiece .model, or 'bytes'; default: the source's own.")
ENCODING = flags.DEFINE_string('encoding', '', "An encoding to store instead of config.json's, such as rope(base=500000).")

ALLOW_PICKLE = flags.DEFINE_boolean('allow_pickle', False, 'Read pytorch_model.bin, tensors alone, where there is no safetensors file.')


def main():
  """Hands over to pe_jax.weights.importing."""
  cli.required('source', 'SmolLM2-135M')
  cli.required('workdir', 'runs/smollm2')
  cli.encoding_list(ENCODING.value)

  from pe_jax.weights import importing

  options = {'train_length': TRAIN_LENGTH.value, 'tokenizer': TOKENIZER.value, 'encoding': ENCODING.value}
  options |= {'allow_pickle': ALLOW_PICKLE.value}
  card = importing.run(SOURCE.value, WORKDIR.value, **options)
  for name, value in card.items():
    print(f'{name:<14} {value}', flush=True)


if __name__ == '__main__':
  cli.run(main, __doc__)
