"""The commands: one file per group, listed in the table of `main.py`. Stdout is data, stderr is talk."""
