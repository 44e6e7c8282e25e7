"""What the config says of text datasets that TFDS prepares: the feature that holds the text, splits, documents shuffled at a time."""

# Some have no split of every kind: then what is tested is the other half of what is validated on.
KNOWN = {
  'c4/en': {'validation_split': 'validation[:50%]', 'test_split': 'validation[50%:]'},
  'pg19': {'text_key': 'book_text', 'block_documents': 64},  # books are long
  'lm1b': {'validation_split': 'test[:50%]', 'test_split': 'test[50%:]'},
}


def fields(name, data_dir):
  """{field: value} for `config.data.update`; of a dataset that is not known the usual ones."""
  found = KNOWN.get(name.partition(':')[0], {})
  return {'source': 'tfds', 'name': name, 'data_dir': data_dir, 'block_documents': 4096} | found
