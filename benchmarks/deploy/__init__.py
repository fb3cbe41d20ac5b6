"""`python -m benchmarks.deploy`: programs as C on other machines, and their times on this one.

networks    ten networks, for inference and as training steps
machines    compilers, emulators, and binaries of several programs
rows        a network on a machine: relative errors, sizes and memory
page        the tables of docs/deploy.md
times       calls through C against the executor and torch
"""
