"""The parts of `make bench` (scripts/bench.py).

plan.py says what a benchmark declares, and each benchmark is a file that declares it: train, encodings, phases, attention, loss, lengths,
decode, pipeline, start, growth. Contestants run in processes of their own (worker.py): ours.py, textbook.py, torch_peers.py, nanodo.py.
rounds.py makes them take turns, verdict.py and report.py say what came of it, machine.py where.
"""
