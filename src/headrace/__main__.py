"""``python -m headrace``: the command, for where its script is not on the path."""

from headrace.cli import run

if __name__ == "__main__":
    run()
