"""One module a contender; see `child.py` for what each offers."""
