"""What scripts/inspect_encoding.py says of encodings: numbers that follow from their definitions, as text, JSON and pictures."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import tiny_runs as runs

from pe_jax import encodings
from pe_jax.encodings.base import Dims
from pe_jax.report import anatomy, anatomy_figure, anatomy_text

pytestmark = pytest.mark.xdist_group('inspect')  # what is compiled once in a process is used by all of the file
SCRIPT = 'scripts/inspect_encoding.py'


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def ask(spec, length=1024, train=128, head_dim=64, heads=8, groups=8, layers=1):
  return anatomy.anatomy(spec, Dims(heads, groups, head_dim, heads * head_dim, train, layers), length)


def pairs(a, key):
  return [pair[key] for pair in a['parts'][0]['rotation'][0]['pairs']]


def heads(a, key):
  return [head[key] for head in a['parts'][0]['weights'][-1]['heads']]


def test_the_wavelength_of_pair_i_is_two_pi_base_to_the_2i_over_d():
  for head_dim, base in ((64, 1e4), (128, 5e5), (16, 1e8)):
    expected = [2 * math.pi * base ** (2 * i / head_dim) for i in range(head_dim // 2)]
    np.testing.assert_allclose(pairs(ask(f'rope(base={base})', head_dim=head_dim), 'wavelength'), expected, rtol=1e-9)


def test_rope_at_128_tokens_leaves_pairs_11_to_31_without_a_full_turn():
  a = ask('rope')
  assert [n for n, turns in enumerate(pairs(a, 'turns_in_training')) if turns < 1] == list(range(11, 32))
  assert [n for n, new in enumerate(pairs(a, 'out_of_distribution')) if new] == list(range(11, 32))
  assert not any(pairs(ask('rope', length=128), 'out_of_distribution'))
  np.testing.assert_allclose(pairs(a, 'turns_read'), 8 * np.asarray(pairs(a, 'turns_in_training')), rtol=1e-9)


def test_yarn_on_llama_2_leaves_pairs_0_to_20_and_divides_46_to_63():
  divisors = pairs(ask('yarn(factor=16)', length=65536, train=4096, head_dim=128), 'divisor')
  np.testing.assert_allclose(divisors[:21], 1, rtol=1e-9)
  np.testing.assert_allclose(divisors[46:], 16, rtol=1e-7)
  assert divisors[20:47] == sorted(divisors[20:47])


def test_the_attention_factor_of_yarn_is_read_off_what_it_turns():
  factor = ask('yarn(factor=8)')['parts'][0]['rotation'][0]['attention_factor']
  assert abs(factor - 1.207944) < 1e-6
  assert abs(factor**2 - 1.459129) < 1e-6


def test_interpolation_leaves_no_pair_out_of_distribution_and_ntk_does():
  assert not any(pairs(ask('linear(factor=8)'), 'out_of_distribution'))
  np.testing.assert_allclose(pairs(ask('linear(factor=8)'), 'divisor'), 8, rtol=1e-7)
  new = pairs(ask('ntk(factor=8)'), 'out_of_distribution')
  assert new[11]
  assert not new[31]  # the slowest pair is divided by 8 exactly


def test_a_pair_that_does_not_turn_any_more_keeps_its_place():
  a = ask('p_rope(p=0.75)')
  assert [n for n, divisor in enumerate(pairs(a, 'divisor')) if divisor is None] == list(range(24, 32))
  assert not any(pairs(a, 'out_of_distribution')[24:])
  assert 'no turn' in anatomy_text.text(a)


def test_partial_rotation_and_the_layout_are_seen_from_outside():
  group = ask("rope(fraction=0.25, layout='interleaved')")['parts'][0]['rotation'][0]
  assert [pair['dimensions'] for pair in group['pairs']] == [[2 * n, 2 * n + 1] for n in range(8)]
  assert group['still_dimensions'] == 48


def test_a_map_that_depends_on_length_is_read_at_the_length():
  for length, base in ((128, 1e4), (129, 10161.33), (256, 31082.24)):
    a = ask('dynamic_ntk(factor=2)', length=length)
    read = np.multiply(pairs(a, 'wavelength'), pairs(a, 'divisor'))
    np.testing.assert_allclose(read, 2 * np.pi * base ** (np.arange(32) / 32), rtol=1e-6)


def test_xpos_shrinks_the_score_of_a_pair_by_zeta_to_the_distance():
  shrinks = ask('xpos')['parts'][0]['rotation'][0]['shrinks_to']
  zeta = (np.arange(0, 64, 2) + 0.4 * 64) / (1.4 * 64)
  np.testing.assert_allclose(shrinks, zeta ** (1023 / 512), rtol=1e-5)


def test_the_steepest_head_of_alibi_forgets_within_two_tokens():
  a = ask('alibi')
  assert heads(a, 'slope') == [2.0**-n for n in range(1, 9)]
  assert heads(a, 'falls_to_1/e') == [2, 4, 8, 16, 32, 64, 128, 256]
  assert heads(a, 'falls_to_1%') == [10, 19, 37, 74, 148, 295, 590, None]  # ln 100 / slope, rounded up
  share = (math.exp(-0.5) - math.exp(-4)) / (1 - math.exp(-4))  # e^-(128 m) .. e^-(1024 m) of the whole, m = 1/256
  np.testing.assert_allclose(heads(a, 'beyond_training')[-1], share, rtol=1e-4)


def test_biases_are_those_of_each_head():
  a = ask('heads(nope, alibi)')
  assert heads(a, 'slope') == [0, 0, 0, 0, 0.25, 0.0625, 0.015625, 0.00390625]
  assert heads(a, 'falls_to_1/e')[:5] == [None] * 4 + [4]
  weights = ask('kerple')['parts'][0]['weights']
  assert [w['query'] for w in weights] == [1023]  # a relative bias is the same for every query
  assert heads(ask('kerple'), 'slope') == [None] * 8


def test_a_bias_that_depends_on_position_is_shown_for_several_queries():
  weights = ask('fire')['parts'][0]['weights']
  assert [w['query'] for w in weights] == [127, 361, 1023]
  assert weights[0]['heads'][0]['bias'][3] != weights[2]['heads'][0]['bias'][3]
  assert weights[0]['heads'][0]['beyond_training'] == 0


def test_stick_breaking_halves_the_rest_at_each_key():
  assert heads(ask('stick_breaking', length=64), 'bias')[0][:3] == [None, math.log(0.5), pytest.approx(math.log(0.25))]
  assert heads(ask('stick_breaking', length=64), 'falls_to_1/e')[0] == 3  # of the nearest visible key, at distance 1


def test_distances_that_a_score_is_taken_at_are_measured():
  def read(spec, length=1024):
    return dict(zip(*(ask(spec, length)['parts'][0]['read_distances'][0][key] for key in ('distance', 'read'))))

  rerope = read('rerope(window=64)')
  assert (rerope[1], rerope[32], rerope[64], rerope[1023]) == (1, 32, 64, 64)
  slow = read('leaky_rerope(window=64, slow=8)')
  np.testing.assert_allclose([slow[32], slow[1023]], [32, 64 + (1023 - 64) / 8], atol=0.01)
  groups = read('self_extend(group=4, window=64)')
  assert groups[1023] == 1023 // 4 - 0 + 64 - 16
  a = ask('rerope(window=64)')
  assert a['parts'][0]['rotation'][0]['reach'] == 65
  assert not any(pairs(a, 'out_of_distribution'))
  assert 'The largest is 64: nothing beyond the 127 of training.' in anatomy_text.text(a)


def test_what_a_query_does_not_see_is_said():
  part = ask('sinks(first=4, window=100)')['parts'][0]
  assert part['visible'][0]['runs'] == [[0, 3], [924, 1023]]
  assert part['visible'][0]['keys'] == 104
  assert part['read_distances'][0]['read'][-1] == 103  # the first token, as near as it can be in a cache of 104


def test_a_sinusoidal_table_is_recognised_by_its_rows():
  table = ask('sinusoidal', length=512, head_dim=8)['table']
  np.testing.assert_allclose(table['wavelengths'], [2 * math.pi * 1e4 ** (2 * i / 64) for i in range(32)], rtol=1e-9)
  np.testing.assert_allclose(table['norm'], 32**0.5, rtol=1e-6)
  other = ask("sinusoidal(layout='concat')", length=512, head_dim=8)['table']
  np.testing.assert_allclose(other['wavelengths'], table['wavelengths'])
  assert ask('learned', length=128, head_dim=8)['table']['wavelengths'] is None


def test_a_table_without_rows_for_the_length_says_so():
  a = ask('learned', head_dim=8)
  assert (a['max_length'], a['served_length'], a['parameters'], a['shapes']) == (128, 128, 128 * 64, {'table': [128, 64]})
  assert 'It cannot serve 1024 tokens; what follows is for 128.' in anatomy_text.text(a)


def test_layers_are_described_one_kind_at_a_time():
  a = ask('layers(rope, yarn(factor=8), nope)', layers=7)
  assert [(part['encoding'], part['layers']) for part in a['parts']] == [('rope', [0, 3, 6]), ('yarn(factor=8)', [1, 4]), ('nope', [2, 5])]
  assert [bool(part['rotation']) for part in a['parts']] == [True, True, False]
  assert any(pair['out_of_distribution'] for pair in a['parts'][0]['rotation'][0]['pairs'])
  assert not any(pair['out_of_distribution'] for pair in a['parts'][1]['rotation'][0]['pairs'])
  both = ask('stack(rope, alibi)')['parts'][0]
  assert (both['enters'], len(both['rotation']), len(both['weights'])) == (['rotate', 'distance_bias'], 1, 1)


def test_each_group_of_heads_has_its_own_frequencies():
  groups = ask('heads(rope, linear(factor=8))')['parts'][0]['rotation']
  assert [group['heads'] for group in groups] == [[0, 1, 2, 3], [4, 5, 6, 7]]
  assert groups[0]['pairs'][5]['divisor'] == pytest.approx(1)
  assert groups[1]['pairs'][5]['divisor'] == pytest.approx(8)
  assert [group['heads'] for group in ask('heads(rope, nope)')['parts'][0]['rotation']] == [[0, 1, 2, 3]]


def test_learned_parameters_are_counted_and_called_initial():
  a = ask('t5(num_buckets=16)')
  assert (a['parameters'], a['seed']) == (16 * 8, 0)
  assert '128 (table 16x8); shown as at initialisation, seed 0' in anatomy_text.text(a)
  assert (ask('alibi')['parameters'], ask('alibi')['seed']) == (0, None)


# One for every way in which position can enter, on a model that is small and groups its keys.
KINDS = (
  'nope', 'rope', 'xpos', 'learned', 'sinusoidal', 'fire', 'stick_breaking', 'lm_infinite', 'fox', 'cope', 'pope', 'log_n(alibi)', 'drope',
  'randomized(rope)', 'layers(stack(rope, kerple), nope)', 'heads(alibi, nope)',
)  # fmt: skip


@pytest.mark.parametrize('spec', KINDS)
def test_every_kind_of_encoding_has_a_text_a_picture_and_strict_json(spec, tmp_path):
  a = ask(spec, length=40, train=16, head_dim=8, heads=4, groups=2, layers=2)
  assert json.loads(json.dumps(a, allow_nan=False)) == a
  text = anatomy_text.text(a)
  assert text.startswith(str(encodings.parse(spec)))
  for fact in ('position enters', 'parameters', 'relative', 'by length', 'longest', 'cache'):
    assert f'\n  {fact}' in text
  assert ('nowhere' in text) == (spec == 'nope')
  anatomy_figure.draw([a], tmp_path / 'a' / 'b.png')
  assert (tmp_path / 'a' / 'b.png').read_bytes().startswith(b'\x89PNG')


def test_ranges_and_numbers_are_short():
  assert anatomy_text.ranges([0, 1, 2, 5, 7, 9, 11, 13]) == '0-2, 5, 7 .. 13'
  assert anatomy_text.ranges([3]) == '3'
  assert anatomy_text.ranges([0, 2]) == '0, 2'
  assert [anatomy_text.number(x) for x in (0, 8.0, 0.123456, 12345.6, 0.5, -2e-14)] == ['0', '8', '0.1235', '12346', '0.5', '0']


LLAMA = {'model_type': 'llama', 'hidden_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'max_position_embeddings': 512}
YARN = {'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 128}
# (arguments, exit code, what is said)
MISTAKES = [
  ([], 2, '--encoding: missing'),
  (['--encoding=roep'], 2, r"'roep' is unknown (did you mean 'rope'?)"),
  (['--encoding=yarn(fctor=8)'], 2, "yarn has no field 'fctor' (did you mean 'factor'?)"),
  (['--encoding=rope', '--head_dim=7'], 2, 'cannot split a width of 7'),
  (['--encoding=rope', '--length=-1'], 2, '--length=-1'),
  (['--encoding=rope', '--num_kv_heads=3'], 2, '--num_kv_heads: 3 does not divide num_heads=8'),
  (['--encoding=rope', '--figure=a.gif'], 2, "--figure: 'a.gif' must end in .png, .pdf or .svg"),
  (['--encoding=nope', '--figure={home}/llama.json/a.png'], 4, 'cannot be written'),
  (['--config={home}/nosuch.json'], 2, 'No such file'),
  (['--config={home}/broken.json'], 2, 'not JSON'),
  (['--config={home}/other.json'], 2, "model_type='bert'"),
  (['--config={home}/bloom.json'], 2, '--train_length: missing'),
  (['--config={home}/llama.json', '--head_dim=8'], 2, '--head_dim: the shape is that of --config'),
]


@pytest.fixture(scope='module')
def home(tmp_path_factory):
  folder = tmp_path_factory.mktemp('configs')
  for name, content in {
    'llama': LLAMA | {'rope_theta': 5e5, 'rope_scaling': YARN},
    'other': LLAMA | {'model_type': 'bert'},
    'bloom': {'model_type': 'bloom', 'hidden_size': 64, 'n_layer': 2, 'n_head': 4},
  }.items():
    (folder / f'{name}.json').write_text(json.dumps(content))
  (folder / 'broken.json').write_text('{')
  return folder


def run(*arguments):
  return runs.finish(runs.start(SCRIPT, *arguments))


def test_a_mistake_is_one_line_with_its_exit_code(home):
  cases = [{'argv': [SCRIPT, *(a.format(home=home) for a in arguments)]} for arguments, _, _ in MISTAKES]
  for (arguments, code, says), (got, out, err, _) in zip(MISTAKES, runs.served(cases), strict=True):
    assert (got, out, says in err, err.count('\n'), err.startswith('ERROR: ')) == (code, '', True, 1, True), (arguments, err)


def test_a_misspelt_name_and_a_bad_config_are_answered_without_jax(home):
  program = 'import runpy, sys\ntry:\n  runpy.run_path(sys.argv[0], run_name="__main__")\nfinally:\n  print("jax" in sys.modules)'
  for argument in ('--help', '--encoding=roep', f'--config={home}/other.json'):
    command = [sys.executable, '-c', f'import sys; sys.argv = {[SCRIPT, argument]!r}\n{program}']
    done = subprocess.run(command, env=runs.environment(), cwd=runs.ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0 if argument == '--help' else 2, 'False'), done.stderr


def test_the_script_prints_text_json_and_draws(home, tmp_path):
  code, out, err = run('--encoding=yarn(factor=8)', f'--figure={tmp_path}/yarn.png')
  assert (code, err) == (0, '')
  assert 'A full turn in training: pairs 0-10. Out of distribution: no pair.' in out
  assert 'attention factor 1.208: scores times 1.459' in out
  assert (tmp_path / 'yarn.png').stat().st_size > 20_000
  code, out, err = run(f'--config={home}/llama.json', '--encoding=linear(factor=2)', '--length=1024', '--json')
  assert (code, err) == (0, '')
  a = json.loads(out, parse_constant=lambda name: pytest.fail(f'{name} is no JSON'))
  assert a['config']['spec'] == 'yarn(factor=4, base=500000, original_length=128)'
  assert a['encoding'] == 'linear(factor=2, base=500000)'  # another map on the frequencies that are declared
  _, out, _ = run(f'--config={home}/llama.json', '--encoding=linear(factor=2, base=10000)', '--json')
  assert json.loads(out)['encoding'] == 'linear(factor=2)'  # a default that is asked for is not what was left open
  assert (a['train_length'], a['length'], a['head_dim'], a['num_heads'], a['num_layers']) == (128, 1024, 16, 4, 2)
  code, out, _ = run(f'--config={home}/llama.json')
  assert (code, 'positions        512, frequencies trained at 128' in out) == (0, True)
