"""Attacks: random and hostile inputs, faults and loads. Each must end in a correct result or in an error of meta.

    python -m tests.attack                            a bounded run of each, a quarter of an hour
    python -m tests.attack calls --count 1000000 --processes 2
    python -m tests.attack files --seconds 3600 --seed 7
    python -m tests.attack calls --seed 7 --case 4711 the one case that a finding names
    python -m tests.attack calls --seed 8 --save runs and python -m tests.attack --merge runs: several runs as one

Each attack is a module with `case(seed, index)`, which returns "" or the problem; an exception is a problem too. Cases
run in child processes, so that crashes and hangs become findings. The exit status is 1 if there are
findings. `make attack` runs it.
"""
