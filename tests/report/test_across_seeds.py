"""Intervals and tests over seeds, on runs whose losses can be told beforehand."""

import pytest
import written_runs as written

from pe_jax.report import across_seeds, ranking, readings, results


@pytest.fixture(scope='module')
def found(tmp_path_factory):
  folder = written.sweep(tmp_path_factory.mktemp('sweep'), ['alibi', 't5', 'rope'], seeds=range(5))
  entries = ranking.of_readings(readings.of_runs(results.scan(folder)))
  return {(one.entry.reading.label, one.entry.protocol): one for one in across_seeds.of_entries(entries)}


def test_what_does_not_rise_is_flat_and_what_rises_is_not(found):
  """The k-th encoding loses .1 k x 3 nats on the way to 256, on every seed the same."""
  for k, name in enumerate(('alibi', 't5', 'rope')):
    one = found[name, 'context']
    assert one.change.mean == pytest.approx(0.3 * k)
    assert one.flat.holds == (k == 0)
    assert one.change.runs == 5


def test_differences_are_taken_seed_by_seed_and_the_least_p_is_that_of_five(found):
  """Seeds differ by .01 from one another, which a difference within a seed leaves out."""
  assert found['alibi', 'context'].best == ''
  for k, name in ((1, 't5'), (2, 'rope')):
    one = found[name, 'nonoverlapping']
    assert (one.best, one.apart.mean) == ('alibi', pytest.approx(0.3 * k))
    assert one.apart.high - one.apart.low < 1e-6
    assert (one.apart.p, one.apart.smallest_p) == (0.0625, 0.0625)
    assert not one.equal.holds


def test_the_table_says_all_of_it(found):
  text = across_seeds.text(list(found.values()))
  line = next(line.split() for line in text.splitlines() if line.startswith('rope') and 'context' in line)
  assert line[1:6] == ['context', '256', '5', '+0.600', '+0.600']
  assert 'least p: what so many seeds can show at best' in text
  assert across_seeds.text([]) == ''
