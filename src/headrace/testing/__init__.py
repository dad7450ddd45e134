"""For tests of headrace and of programs on top of it: failing stores, a conformance suite, real servers, strategies.

Nothing shipped imports this package; it needs pytest and Hypothesis only in the modules that speak of them.
"""
