"""Classics out of packages: R's way of keeping text, and where a novel is cut. What is fetched is not fetched here."""

import gzip
import struct
import zlib

import pytest
from classics import austen, r_data, shakespeare


def text(value):
  """R's CHARSXP of a str, with the flag that says UTF-8; None is NA."""
  if value is None:
    return struct.pack('>ii', 9, -1)
  return struct.pack('>ii', 0x8009, len(value.encode())) + value.encode()


def strings(values):
  return struct.pack('>ii', 16, len(values)) + b''.join(map(text, values))


def named(values, names):
  """A list with names: the attribute is a pairlist of one pair, whose tag is the symbol `names`."""
  attributes = struct.pack('>i', 0x402) + struct.pack('>i', 1) + text('names') + strings(names) + struct.pack('>i', 254)
  return struct.pack('>ii', 0x213, len(values)) + b''.join(values) + attributes


def whole(item, version=2):
  native = struct.pack('>i', 5) + b'UTF-8' if version == 3 else b''
  return b'X\n' + struct.pack('>iii', version, 0x30602, 0x20300) + native + item


@pytest.mark.parametrize('version', [2, 3])
def test_text_is_read_as_r_writes_it(version):
  assert r_data.loads(whole(strings(['CHAPTER I', '', 'été — “x”', None]), version)) == ['CHAPTER I', '', 'été — “x”', None]
  pair = struct.pack('>ii2d', 14, 2, 7.0, 2.5)
  nested = named([named([pair, struct.pack('>iii', 13, 1, -4)], ['x', 'y']), strings(['a'])], ['in', 'out'])
  # The second `names` is a reference to the first symbol.
  first = struct.pack('>i', 1) + text('names')
  again = nested.rfind(first)
  nested = nested[:again] + struct.pack('>i', 0x1FF) + nested[again + len(first) :]
  assert r_data.loads(whole(nested, version)) == {'in': {'x': [7, 2.5], 'y': [-4]}, 'out': ['a']}
  with pytest.raises(ValueError, match='kind 4'):
    r_data.loads(whole(struct.pack('>ii', 4, 1)))
  with pytest.raises(ValueError, match='not an R object'):
    r_data.loads(b'A\n1')


def test_the_objects_of_a_package_are_found_by_its_index(tmp_path):
  blocks = [struct.pack('>i', len(c)) + zlib.compress(c) for c in map(whole, (strings(['one']), strings(['two', '2'])))]
  places = [struct.pack('>ii2i', 13, 2, 0, len(blocks[0])), struct.pack('>ii2i', 13, 2, len(blocks[0]), len(blocks[1]))]
  (tmp_path / 'Rdata.rdb').write_bytes(b''.join(blocks))
  (tmp_path / 'Rdata.rdx').write_bytes(gzip.compress(whole(named([named(places, ['emma', 'persuasion'])], ['variables']))))
  assert r_data.variables(tmp_path / 'Rdata.rdx') == {'emma': ['one'], 'persuasion': ['two', '2']}
  (tmp_path / 'Rdata.rdb').write_bytes(struct.pack('>i', 3) + b''.join(blocks)[4:])
  with pytest.raises(ValueError, match='should have 3'):
    r_data.variables(tmp_path / 'Rdata.rdx')


def test_a_novel_is_cut_at_its_chapters_and_nothing_is_lost():
  lines = ['EMMA', '', 'VOLUME I', 'CHAPTER I', 'Emma Woodhouse, handsome,', '', 'Chapter 2', 'the chapter i read', 'CHAPTER III.', 'FINIS']
  cut = austen.chapters(lines)
  assert [part.splitlines()[0] for part in cut] == ['EMMA', 'Chapter 2', 'CHAPTER III.']
  assert ''.join(cut) == '\n'.join(lines) + '\n'
  assert austen.chapters(['no', 'heading']) == ['no\nheading\n']


def test_a_play_is_cut_at_its_scenes_and_nothing_is_lost():
  text = 'HAMLET\nSCENE. Elsinore.\nACT I.\nScene I. Elsinore. A platform.\nWho goes?\nSCENE II. A room.\nscene i saw\nScene 3.\nEnd\n'
  cut = shakespeare.scenes(text)
  assert [part.splitlines()[0] for part in cut] == ['HAMLET', 'SCENE II. A room.', 'Scene 3.']
  assert ''.join(cut) == text
