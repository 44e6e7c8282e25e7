"""Many runs from one config file: planned (plan.py), priced (cost.py), run here (local.py) or by Slurm (slurm.py), printed (commands.py).

A run is a folder below the sweep's, and what is known of it is what stands there (state.py): no table is kept beside the runs, so a sweep
can be killed at any moment and started again by the same command.
"""
