"""The scripts for TPU VMs: every command can be seen without gcloud, and a preempted run is started again."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import tiny_runs as runs

SCRIPTS = runs.ROOT / 'scripts'


def said(*arguments, script='tpu_vm.sh', **environment):
  """(exit code, stdout, stderr) without gcloud anywhere near."""
  done = subprocess.run(
    ['bash', str(SCRIPTS / script), *map(str, arguments)],
    env={'PATH': '/usr/bin:/bin', 'HOME': '/nonexistent', **environment},
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )
  return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
  ('arguments', 'commands'),
  [
    (['create', '--spot', '--type=v4-16'], ['tpu-vm create pe-jax --zone=us-central1-a --accelerator-type=v4-16 --version=', '--spot']),
    (['setup', '--project=p'], ['archive --format=tar.gz', 'tpu-vm scp ', 'constraints.txt']),
    (['run', '--', 'train.py', '--config=c.py:stack(rope, alibi)', '--workdir=gs://b/a'], ['train.py', '--coordinator=auto']),
    (['logs'], ['tail']),
    (['stop'], ['kill']),
    (['fetch', 'gs://b/a', 'here'], ['mkdir -p here', 'gcloud storage rsync --recursive gs://b/a here']),
    (['fetch', 'runs/a', 'here'], ['tpu-vm scp --recurse pe-jax:pe_jax/runs/a here --zone=us-central1-a --worker=0']),
    (['--name=mine', 'delete', '--zone=europe-west4-b'], ['tpu-vm delete mine --zone=europe-west4-b --quiet']),
  ],
)
def test_a_dry_run_prints_every_command_and_runs_none(arguments, commands):
  code, out, err = said('--dry_run', *arguments)
  assert (code, out) == (0, ''), err
  for command in commands:
    assert command in err, err
  assert all(line.startswith('+ ') for line in err.splitlines())
  hosts = '--worker=all' if arguments[0] in ('setup', 'run', 'logs', 'stop') else ''
  assert hosts in err


@pytest.mark.parametrize(
  ('kind', 'image'),
  [
    ('v3-8', 'tpu-ubuntu2204-base'),
    ('v4-16', 'tpu-ubuntu2204-base'),
    ('v5litepod-8', 'v2-alpha-tpuv5-lite'),
    ('v5p-16', 'v2-alpha-tpuv5'),
    ('v6e-16', 'v2-alpha-tpuv6e'),
  ],
)
def test_every_type_starts_from_its_own_image(kind, image):
  assert f'--accelerator-type={kind} --version={image}\n' in said('--dry_run', 'create', f'--type={kind}')[2]
  assert '--version=mine\n' in said('--dry_run', 'create', f'--type={kind}', '--runtime=mine')[2]
  assert '--version=mine\n' in said('--dry_run', 'create', '--type=v9-1', TPU_RUNTIME='mine')[2]


def for_hosts(*arguments):
  """The command that the hosts' shells would get."""
  code, _, err = said('--dry_run', *arguments)
  assert code == 0, err
  quoted = err.splitlines()[-1].partition('--worker=all ')[2]
  printed = subprocess.run(['bash', '-c', f'printf %s {quoted}'], capture_output=True, text=True, check=True)
  return printed.stdout.removeprefix('--command=')


def host(folder):
  """What `setup` makes of a host, with a Python that only prints its arguments."""
  home = folder / 'pe_jax'
  (home / '.venv' / 'bin').mkdir(parents=True)
  (home / 'scripts').mkdir()
  shutil.copy(SCRIPTS / 'again.sh', home / 'scripts')
  (home / '.venv' / 'bin' / 'python').write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
  (home / '.venv' / 'bin' / 'python').chmod(0o755)
  return home


def test_what_runs_on_the_hosts_has_the_words_that_were_given(tmp_path):
  """The command for the hosts is run here, with a run that only prints its arguments."""
  home = host(tmp_path)
  command = for_hosts('run', '--', 'train.py', "--config=c.py:stack(rope, alibi(slope='x'))", '--workdir=gs://b/$HOME')
  subprocess.run(['bash', '-c', command], cwd=tmp_path, check=True, capture_output=True)
  assert (home / 'run.log').read_text() == (
    "<train.py><--config=c.py:stack(rope, alibi(slope='x'))><--workdir=gs://b/$HOME><--coordinator=auto>"
  )
  assert (home / 'run.pid').read_text().strip().isdigit()
  (home / 'run.pid').write_text(str(os.getpid()))  # one that still runs
  done = subprocess.run(['bash', '-c', command], cwd=tmp_path, check=False, capture_output=True, text=True)
  assert (done.returncode, done.stderr.count('\n')) == (5, 1)
  assert done.stderr.startswith('ERROR: a run goes on there (')
  assert 'stop ends it)' in done.stderr


def test_several_commands_run_on_the_hosts_one_after_the_other_and_all_with_the_others(tmp_path):
  home = host(tmp_path)
  command = for_hosts('run', '--', 'python', 'train.py', '--workdir=gs://b/a', '&&', 'python', 'eval.py', '--lengths=16,32')
  subprocess.run(['bash', '-c', command], cwd=tmp_path, check=True, capture_output=True)
  assert (home / 'run.log').read_text() == (
    '<train.py><--workdir=gs://b/a><--coordinator=auto><eval.py><--lengths=16,32><--coordinator=auto>'
  )


def test_setting_up_a_host_unpacks_and_installs_for_a_python_that_is_new_enough(tmp_path):
  """With a python3 that writes down what it is asked for, and makes an environment of itself."""
  (tmp_path / 'bin').mkdir()
  (tmp_path / 'bin' / 'python3').write_text(
    '#!/bin/sh\necho "$@" >> "$HOME/log"\ncase "$*" in *"uv venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;; esac\n'
  )
  (tmp_path / 'bin' / 'python3').chmod(0o755)
  (tmp_path / 'train.py').write_text('')
  subprocess.run(['tar', '-czf', 'pe_jax.tar.gz', 'train.py'], cwd=tmp_path, check=True)
  path = f'{tmp_path / "bin"}:/usr/bin:/bin'
  subprocess.run(['bash', '-c', for_hosts('setup')], cwd=tmp_path, env={'PATH': path, 'HOME': str(tmp_path)}, check=True)
  assert (tmp_path / 'pe_jax' / 'train.py').exists()
  asked = (tmp_path / 'log').read_text().splitlines()
  assert asked[:3] == [
    '-m pip install -q --user uv',
    '-m uv venv -q --clear --seed --python 3.12 .venv',
    '-m pip install -q -c constraints.txt -e .[tpu,gcs]',
  ]
  assert asked[3].startswith('-c import jax')


@pytest.mark.parametrize(
  ('arguments', 'says'),
  [
    ([], 'what shall be done'),
    (['destroy'], "'destroy' is no command"),
    (['--nmae=x', 'create'], 'there is no such flag'),
    (['create', '--name=Bad Name'], 'is no name of a TPU'),
    (['create', '--name=a;b'], 'is no name of a TPU'),
    (['run'], 'what shall run'),
    (['run', '--', 'rm', '-rf'], "'rm' is neither train.py nor eval.py"),
    (['run', '--', 'train.py', '&&', 'rm'], "'rm' is neither train.py nor eval.py"),
    (['run', '--', 'train.py', '&&'], 'there is no command'),
    (['create', '--type=v9-1'], "no image is known for 'v9-1'"),
    (['fetch', 'gs://b/a'], 'from where, to where'),
  ],
)
def test_a_mistake_is_a_line(arguments, says):
  code, out, err = said(*arguments)
  assert (code, out, err.count('\n')) == (2, '', 1)
  assert err.startswith('ERROR: ')
  assert says in err


def test_help_says_what_there_is():
  code, out, _ = said('--help', script='again.sh')
  assert (code, 'scripts/again.sh python train.py' in out) == (0, True)
  code, out, _ = said('--help')
  assert code == 0
  for word in ('create', 'setup', 'run --', 'logs', 'stop', 'fetch', 'delete', '--dry_run'):
    assert word in out


@pytest.mark.parametrize('script', ['tpu_vm.sh', 'again.sh'])
def test_the_scripts_are_clean_by_shellcheck(script):
  found = shutil.which('shellcheck', path=f'{os.path.dirname(sys.executable)}:{os.environ["PATH"]}')
  if not found:
    pytest.skip('no shellcheck here (the test extra brings it)')
  done = subprocess.run([found, str(SCRIPTS / script)], capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stdout


def counting(folder, ends):
  """A command that ends with the next of the codes each time, after it has told of the step that stands beside it, if any.

  Its log gets a letter a start: 'x', or 'a' where it was told that it comes again.
  """
  script = folder / 'run.py'
  script.write_text(
    f'import pathlib, sys\nsys.path.insert(0, {str(runs.ROOT)!r})\nfrom pe_jax import again\nlog = pathlib.Path({str(folder / "log")!r})\n'
    f'before = log.read_text() if log.exists() else ""\nlog.write_text(before + ("a" if again.is_again() else "x"))\n'
    f'code, *step = {ends!r}[len(before)]\nstep and again.tell("runs/a", *step)\nsys.exit(code)\n'
  )
  return [sys.executable, str(script)]


@pytest.mark.parametrize(
  ('ends', 'code', 'starts'),
  [
    ([(0,)], 0, 'x'),
    ([(75, 1), (75, 2), (134, 3), (1,), (0,)], 0, 'xaaaa'),
    ([(75, 5), (6,), (0,)], 6, 'xa'),
    ([(2,), (0,)], 2, 'x'),
    ([(1,)] * 4 + [(0,)], 1, 'xaaa'),
    ([(75,)] * 4 + [(0,)], 75, 'xaaa'),  # somebody else is gone, each time anew
    ([(1,), (1,), (137, 5), (1,), (75,), (1,), (137,), (0,)], 137, 'xaaaaaa'),  # a step between them counts anew
    ([(137, 5)] * 5 + [(0,)], 137, 'xaaaa'),  # the same step each time is no progress
  ],
)
def test_a_run_is_started_again_until_it_has_ended_for_good_or_saves_nothing_more(tmp_path, ends, code, starts):
  found, _, err = said(*counting(tmp_path, ends), script='again.sh', AGAIN_AFTER='0', TMPDIR=str(tmp_path))
  assert (found, (tmp_path / 'log').read_text()) == (code, starts), err
  assert ('ERROR: 4 starts in a row have saved no new checkpoint' in err) == (code in (1, 75, 137)), err
  assert not list(tmp_path.glob('pe_jax_saved*'))


def test_it_waits_longer_each_time_that_nothing_was_saved(tmp_path):
  (tmp_path / 'sleep').write_text('#!/bin/sh\n')
  (tmp_path / 'sleep').chmod(0o755)
  _, _, err = said(*counting(tmp_path, [(1,), (1,), (75, 1), (0,)]), script='again.sh', AGAIN_AFTER='1', PATH=f'{tmp_path}:/usr/bin:/bin')
  assert re.findall(r'again in (\d+) s', err) == ['2', '4', '1']


def test_commands_between_two_words_are_run_one_after_the_other(tmp_path):
  (tmp_path / 'train').mkdir()
  train = counting(tmp_path / 'train', [(75, 1), (0,)])
  (tmp_path / 'eval').mkdir()
  code, _, err = said(*train, '&&', *counting(tmp_path / 'eval', [(134,), (0,)]), script='again.sh', AGAIN_AFTER='0')
  assert (code, [(tmp_path / name / 'log').read_text() for name in ('train', 'eval')]) == (0, ['xa', 'xa']), err
  code, out, _ = said('sh', '-c', 'exit 3', '&&', 'echo', 'never', script='again.sh')
  assert (code, out) == (3, '')
  code, out, err = said('echo', 'never', '&&', script='again.sh')
  assert (code, out) == (2, ''), err


def test_a_signal_goes_on_to_the_run_which_saves_and_is_not_started_again(tmp_path):
  script = tmp_path / 'run.py'
  script.write_text(
    'import pathlib, signal, sys, time\n'
    f'log = pathlib.Path({str(tmp_path / "log")!r})\n'
    'def save(*_):\n  log.write_text(log.read_text() + "saved")\n  sys.exit(75)\n'
    'signal.signal(signal.SIGTERM, save)\nlog.write_text("started ")\ntime.sleep(60)\n'
  )
  process = subprocess.Popen(['bash', str(SCRIPTS / 'again.sh'), sys.executable, str(script)], env=os.environ | {'AGAIN_AFTER': '0'})
  while not (tmp_path / 'log').exists() or not (tmp_path / 'log').read_text():
    time.sleep(0.02)
  process.send_signal(signal.SIGTERM)
  assert process.wait(timeout=30) == 75
  assert (tmp_path / 'log').read_text() == 'started saved'
